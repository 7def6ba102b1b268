"""Every port in memory, as faithful as the AWS adapters: the same contract suite holds both.

Each call is atomic under one lock, as single calls of DynamoDB and S3 are. Values are immutable or copied, so that a
caller's value never changes under it.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock_core.acls.settings import AclSettings
from penstock_core.ids import ZoneName
from penstock_core.storage.keys import KeyLayout
from penstock_service.adapters.memory.acls import MemoryAclStore
from penstock_service.adapters.memory.audit import MemoryAuditStore
from penstock_service.adapters.memory.compaction import MemoryCompactionStore
from penstock_service.adapters.memory.contention import Contention
from penstock_service.adapters.memory.delivery_queue import MemoryDeliveryQueue
from penstock_service.adapters.memory.groups import MemoryGroupStore, MemoryMembershipStore
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.adapters.memory.push import MemoryPushStore
from penstock_service.adapters.memory.quotas import MemoryQuotaStore
from penstock_service.adapters.memory.segments import MemoryArchiveStore, MemoryInlineStore, MemorySegmentStore
from penstock_service.adapters.memory.share import MemoryShareStore
from penstock_service.adapters.memory.targets import MemoryTargets
from penstock_service.adapters.memory.timers import MemoryTimerStore, MemoryTimerTriggers
from penstock_service.adapters.memory.topics import MemoryTopicStore
from penstock_service.adapters.memory.transactions import MemoryTransactionStore
from penstock_service.adapters.memory.zones import MemoryJobCursors, MemoryRepairQueue, MemoryZoneStateStore
from penstock_service.adapters.no_wake_ups import NoWakeUps
from penstock_service.adapters.system import SystemClock, SystemEntropy, ThreadExecutor
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Clock, Entropy, Executor, Runtime
from penstock_service.ports.segments import ARCHIVE
from penstock_service.ports.wake_ups import WakeUps
from penstock_service.stores import Stores


def memory_instance(
    *,
    zones: Sequence[str] = ("a", "b", "c"),
    fallback_zones: Sequence[str] = (),
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    executor: Executor | None = None,
    acl_settings: AclSettings | None = None,
    inline_bytes_max: int = 0,
) -> Instance:
    """A whole service in memory. It runs on the system's clock, entropy and threads unless you give others."""
    runtime = Runtime(
        clock=clock or SystemClock(), entropy=entropy or SystemEntropy(), executor=executor or ThreadExecutor()
    )
    stores = memory_stores(zones, fallback_zones=fallback_zones, inline_bytes_max=inline_bytes_max)
    return Instance.new(
        replace(stores, deliveries=MemoryDeliveryQueue(runtime.clock)), runtime, acl_settings=acl_settings
    )


def memory_stores(
    zones: Sequence[str] = ("a", "b", "c"),
    contention: Contention | None = None,
    wake_ups: WakeUps | None = None,
    *,
    fallback_zones: Sequence[str] = (),
    hour_zones: Sequence[str] = (),
    inline_bytes_max: int = 0,
) -> Stores:
    """Empty stores in memory. With a `contention`, transactions take time, and other writes conflict with them.

    Without `wake_ups`, readers poll. The keys of `hour_zones` begin with the hour, as in directory buckets. The queue
    of deliveries runs on the system's clock.
    """
    log, groups, share = MemoryLogIndex(contention), MemoryGroupStore(), MemoryShareStore(contention)
    timers, push = MemoryTimerStore(log, contention), MemoryPushStore(contention)
    return Stores(
        topics=MemoryTopicStore(),
        log=log,
        groups=groups,
        memberships=MemoryMembershipStore(),
        share=share,
        push=push,
        transactions=MemoryTransactionStore(log, groups, share, timers, push, contention),
        compaction=MemoryCompactionStore(log, contention),
        timers=timers,
        zone_states=MemoryZoneStateStore(),
        acls=MemoryAclStore(),
        cursors=MemoryJobCursors(),
        audit=MemoryAuditStore(),
        quotas=MemoryQuotaStore(),
        zones=[
            MemorySegmentStore(zone, KeyLayout.BY_HOUR if zone in hour_zones else KeyLayout.SPREAD) for zone in zones
        ],
        archive=MemoryArchiveStore(ARCHIVE),
        inline=MemoryInlineStore(),
        inline_bytes_max=inline_bytes_max,
        repair_queue=MemoryRepairQueue(),
        wake_ups=wake_ups or NoWakeUps(),
        timer_triggers=MemoryTimerTriggers(),
        deliveries=MemoryDeliveryQueue(SystemClock()),
        targets=MemoryTargets(),
        fallback_zones=frozenset(map(ZoneName, fallback_zones)),
    )
