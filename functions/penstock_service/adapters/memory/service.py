"""A whole service in memory: the stores that ship, on tables in memory, and stand-ins for the rest of AWS."""

from collections.abc import Sequence

from penstock_core.acls.settings import AclSettings
from penstock_core.ids import ZoneName
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.storage.keys import KeyLayout
from penstock_service.adapters.absent import NoWakeUps
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.memory.messages import (
    MemoryDeliveryQueue,
    MemoryRepairQueue,
    MemoryTargets,
    MemoryTimerTriggers,
)
from penstock_service.adapters.memory.segments import MemoryArchiveStore, MemorySegmentStore
from penstock_service.adapters.system import SystemClock, SystemEntropy, ThreadExecutor
from penstock_service.adapters.tables.tables import InterposedTables, Tables
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Clock, Entropy, Executor, Runtime
from penstock_service.ports.segments import ARCHIVE
from penstock_service.ports.wake_ups import WakeUps
from penstock_service.stores import Stores


def memory_instance(
    *,
    zones: Sequence[str] = ("a", "b", "c"),
    fallback_zones: Sequence[str] = (),
    tables: Tables | InterposedTables | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    executor: Executor | None = None,
    acl_settings: AclSettings | None = None,
    small: InlineBounds = NO_ITEMS,
) -> Instance:
    """A whole service in memory. It runs on the system's clock, entropy and threads unless you give others."""
    runtime = Runtime(
        clock=clock or SystemClock(), entropy=entropy or SystemEntropy(), executor=executor or ThreadExecutor()
    )
    stores = memory_stores(
        zones,
        fallback_zones=fallback_zones,
        tables=tables,
        clock=runtime.clock,
        entropy=runtime.entropy,
        small=small,
    )
    return Instance.new(stores, runtime, acl_settings=acl_settings)


def memory_stores(
    zones: Sequence[str] = ("a", "b", "c"),
    *,
    fallback_zones: Sequence[str] = (),
    hour_zones: Sequence[str] = (),
    tables: Tables | InterposedTables | None = None,
    wake_ups: WakeUps | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    small: InlineBounds = NO_ITEMS,
) -> Stores:
    """Stores on `tables`, which are empty if you give none, and empty zones.

    Without `wake_ups`, readers poll. The keys of `hour_zones` begin with the hour, as in directory buckets. Tables,
    their client and the queue of deliveries run on `clock`, the system's if you give none.
    """
    clock = clock or SystemClock()
    client = DynamoDbClient(tables or Tables(clock.now_ms), clock, entropy or SystemEntropy())
    return Stores(
        **table_stores(client),
        zones=[
            MemorySegmentStore(zone, KeyLayout.BY_HOUR if zone in hour_zones else KeyLayout.SPREAD) for zone in zones
        ],
        archive=MemoryArchiveStore(ARCHIVE),
        small=small,
        repair_queue=MemoryRepairQueue(),
        wake_ups=wake_ups or NoWakeUps(),
        timer_triggers=MemoryTimerTriggers(),
        deliveries=MemoryDeliveryQueue(clock),
        targets=MemoryTargets(),
        fallback_zones=frozenset(map(ZoneName, fallback_zones)),
    )
