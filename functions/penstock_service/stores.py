"""The storage that all function instances share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_core.log.inline import NO_ITEMS, InlineBounds

if TYPE_CHECKING:  # a function loads the ports that it uses
    from penstock_core.ids import ZoneName
    from penstock_service.ports.access import AclStore, AuditStore, QuotaStore
    from penstock_service.ports.groups import GroupStore, MembershipStore
    from penstock_service.ports.log import CompactionStore, LogIndex
    from penstock_service.ports.push import DeliveryQueue, PushStore, Targets, WakeUps
    from penstock_service.ports.runtime import JobCursors
    from penstock_service.ports.schedules import ScheduleStore
    from penstock_service.ports.segments import ArchiveStore, InlineStore, SegmentStore
    from penstock_service.ports.share import ShareStore
    from penstock_service.ports.timers import TimerStore, TimerTriggers
    from penstock_service.ports.topics import RepairQueue, TopicStore, ZoneStateStore
    from penstock_service.ports.transactions import TransactionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """One port for each kind of item, and one for each zone. Nothing in here belongs to a single function instance.

    `zones` are in configured order: a zone's place is its bit in a ref's bitmap. Appends put to `fallback_zones` only
    where another zone fails (docs/protocol/zones). Segments within the bounds of `small` go into `inline` and into no
    zone; without bounds none goes there, and what lies there is read and swept all the same (docs/adr/0064).
    """

    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    memberships: MembershipStore
    share: ShareStore
    push: PushStore
    schedules: ScheduleStore
    transactions: TransactionStore
    compaction: CompactionStore
    timers: TimerStore
    zone_states: ZoneStateStore
    acls: AclStore
    cursors: JobCursors
    audit: AuditStore
    quotas: QuotaStore
    zones: Sequence[SegmentStore]
    archive: ArchiveStore
    inline: InlineStore
    repair_queue: RepairQueue
    wake_ups: WakeUps
    timer_triggers: TimerTriggers
    deliveries: DeliveryQueue
    targets: Targets
    fallback_zones: frozenset[ZoneName] = frozenset()
    small: InlineBounds = NO_ITEMS

    @property
    def zone_names(self) -> tuple[ZoneName, ...]:
        """The names of the zones, in configured order."""
        return tuple(store.zone for store in self.zones)

    @property
    def regular_zones(self) -> int:
        """The bitmap of the zones that should hold every segment: all but the fallbacks."""
        return sum(1 << index for index, zone in enumerate(self.zone_names) if zone not in self.fallback_zones)
