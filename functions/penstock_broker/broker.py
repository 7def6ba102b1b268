"""What every use case is given: the ports and the few settings that they share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_broker.directory import TopicDirectory
from penstock_broker.events import Events
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.held_segments import HeldSegments
from penstock_broker.ports import (
    ArchiveStore,
    Chance,
    Clock,
    CompactionStore,
    GroupStore,
    JobCursors,
    LogIndex,
    MembershipStore,
    Parallel,
    RepairQueue,
    SegmentStore,
    TopicStore,
    TransactionStore,
    ZoneStateStore,
)
from penstock_broker.reports import Reports
from penstock_broker.zone_directory import ZoneDirectory
from penstock_broker.zone_health import ZoneHealth
from penstock_broker.zone_latency import HEDGE_FLOOR_MS, ZoneLatency
from penstock_core.ids import ZoneName

STRAGGLER_GRACE_MS = 5
PUT_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The ports, plus what one function instance remembers between requests (and may forget at any time).

    `zones` are in configured order, which is their bit in a ref's bitmap. `straggler_grace_ms` is how long an append
    waits, once it has its acks, for the remaining zones to confirm too: a zone that just misses the quorum by
    a moment is then not marked as under-replicated. A put that has not answered within `put_timeout_ms` has failed for
    its request. A read asks the next zone too when one takes longer than usual, and at least `hedge_floor_ms`.
    """

    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    transactions: TransactionStore
    compaction: CompactionStore
    memberships: MembershipStore
    zone_states: ZoneStateStore
    cursors: JobCursors
    zones: Sequence[SegmentStore]
    archive: ArchiveStore
    repair_queue: RepairQueue
    parallel: Parallel
    clock: Clock
    chance: Chance
    directory: TopicDirectory
    zone_directory: ZoneDirectory
    group_directory: GroupDirectory
    latency: ZoneLatency = field(default_factory=ZoneLatency)
    health: ZoneHealth = field(default_factory=ZoneHealth)
    reports: Reports = field(default_factory=Reports)
    events: Events = field(default_factory=Events)
    held: HeldSegments = field(default_factory=HeldSegments)
    straggler_grace_ms: int = STRAGGLER_GRACE_MS
    put_timeout_ms: float = PUT_TIMEOUT_MS
    hedge_floor_ms: float = HEDGE_FLOOR_MS

    @property
    def zone_names(self) -> tuple[ZoneName, ...]:
        return tuple(store.zone for store in self.zones)
