"""A whole service in memory: the stores that ship, on tables in memory, and stand-ins for the rest of AWS.

Segments in memory.
"""

from collections.abc import Iterable, Sequence

from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import LIST_KEYS_MAX
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.storage.keys import KeyLayout, segment_folder, segment_key
from penstock_service.adapters.absent import NoWakeUps
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.memory.messages import (
    MemoryDeliveryQueue,
    MemoryRepairQueue,
    MemoryTargets,
    MemoryTimerTriggers,
)
from penstock_service.adapters.system import SystemClock, SystemEntropy, ThreadExecutor
from penstock_service.adapters.tables.tables import InterposedTables, Tables
from penstock_service.instance.instance import Instance
from penstock_service.ports.push import WakeUps
from penstock_service.ports.runtime import Clock, Entropy, Executor, Runtime
from penstock_service.ports.segments import ARCHIVE, ListedKeys
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


class MemorySegmentStore:
    """SegmentStore of one zone: the port documents its methods. `is_down` makes it refuse, as a lost zone does."""

    earlier = None

    def __init__(self, zone: str, layout: KeyLayout = KeyLayout.SPREAD) -> None:
        self._zone = ZoneName(zone)
        self.layout = layout
        self.segments: dict[SegmentId, bytes] = {}
        self.is_down = False

    @property
    def zone(self) -> ZoneName:
        return self._zone

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - memory does not rot
        self._check_up()
        self.segments.setdefault(segment_id, bytes(body))

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        self._check_up()
        if segment_id not in self.segments:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"zone {self._zone} has no segment {segment_id.hex()}",
                is_missing=True,
            )
        data = self.segments[segment_id][position : position + length]
        if len(data) != length:
            raise PenstockError(
                ErrorCode.CORRUPT_SEGMENT,
                f"zone {self._zone} holds {len(data)} of {length} bytes from {position} of segment {segment_id.hex()}",
            )
        return data

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        self._check_up()
        return self.segments.get(segment_id)

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - as put
        self._check_up()
        self.segments[segment_id] = bytes(body)

    def list_folders(self) -> Sequence[str]:
        self._check_up()
        return sorted({segment_folder(each, self.layout) for each in self.segments.copy()})

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        self._check_up()
        near = [each for each in self.segments.copy() if prefix.startswith(segment_folder(each, self.layout))]
        keys = sorted(key for each in near if (key := segment_key(each, self.layout)).startswith(prefix))
        behind = [key for key in keys if token is None or key > token]
        part = behind[:LIST_KEYS_MAX]
        return ListedKeys(keys=part, next_token=part[-1] if len(behind) > len(part) else None)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        self._check_up()
        for segment_id in segment_ids:
            self.segments.pop(segment_id, None)

    def _check_up(self) -> None:
        if self.is_down:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"zone {self._zone} does not answer")


class MemoryArchiveStore(MemorySegmentStore):
    """ArchiveStore: the port documents its methods."""

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        body = b"".join(chunks)
        self._check_up()
        self.segments.setdefault(segment_id, body)
