"""What every use case is given: the ports and the few settings that they share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_broker.directory import TopicDirectory
from penstock_broker.ports import Chance, Clock, GroupStore, LogIndex, Parallel, SegmentStore, TopicStore
from penstock_broker.zone_latency import ZoneLatency

STRAGGLER_GRACE_MS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The ports, plus what one function instance remembers between requests (and may forget at any time).

    `zones` are in configured order, which is their bit in a ref's bitmap. `straggler_grace_ms` is how long an append
    waits, once it has its acks, for the remaining zones to confirm too: a zone that just misses the quorum by
    a moment is then not marked as under-replicated.
    """

    topics: TopicStore
    log: LogIndex
    groups: GroupStore
    zones: Sequence[SegmentStore]
    parallel: Parallel
    clock: Clock
    chance: Chance
    directory: TopicDirectory
    latency: ZoneLatency = field(default_factory=ZoneLatency)
    straggler_grace_ms: int = STRAGGLER_GRACE_MS
