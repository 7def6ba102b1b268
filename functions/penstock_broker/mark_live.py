"""Mark: find the segments that live refs name, of one partition after the other. What the sweep spares (sweep.py)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from penstock_broker.broker import Broker
from penstock_broker.walk_pages import walk_pages
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, segment_time_ms
from penstock_core.index import Head, settled_offset
from penstock_core.keys import SEGMENT_PREFIXES, PartitionKey, prefix_number
from penstock_core.topic import Topic

KEYS_AT_ONCE = 100
_PAGES_PER_QUERY = 500


@dataclass(slots=True)
class LiveSegments:
    """The live segments of the prefixes `[first, end)` that are older than `cutoff_ms`; younger ones are spared, and
    those older than `since_ms` are left. More than `live_max` are not kept: the last prefixes are dropped instead."""

    first: int
    since_ms: int
    cutoff_ms: int
    live_max: int
    end: int = SEGMENT_PREFIXES
    ids: set[SegmentId] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def add(self, segment_ids: Iterable[SegmentId]) -> None:
        with self._lock:
            self.ids.update(each for each in segment_ids if self.is_ours(each))
            while len(self.ids) > self.live_max and self.end > self.first + 1:
                self.end = (self.first + self.end) // 2
                self.ids = {each for each in self.ids if self.is_ours(each)}

    def is_ours(self, segment_id: SegmentId) -> bool:
        in_round = self.first <= prefix_number(segment_id) < self.end
        return in_round and self.since_ms <= segment_time_ms(segment_id) < self.cutoff_ms

    def is_foreign(self, segment_id: SegmentId) -> bool:
        return segment_time_ms(segment_id) < min(self.since_ms, self.cutoff_ms)


def mark_portion(
    broker: Broker, topic: Topic, keys: Sequence[PartitionKey], live: LiveSegments, log_start_grace_ms: int
) -> None:
    """Adds what the refs of these partitions of the topic name, 100 partitions at most. One read of heads, and a query
    for every 500 pages. Raises what reading the index raises, and CORRUPT_SEGMENT if it is damaged."""
    heads = broker.log.heads(keys)
    if len(heads) < len(keys):
        _check_deleted(broker, topic)
    for result in broker.parallel.map(
        lambda key: _mark_partition(broker, key, heads[key], live, log_start_grace_ms),
        [key for key in keys if key in heads],
    ):
        if isinstance(result, PenstockError):
            raise result


def _mark_partition(
    broker: Broker, key: PartitionKey, head: Head | None, live: LiveSegments, log_start_grace_ms: int
) -> None:
    """Begins again with the present head where pages were deleted meanwhile; what was marked before stays so."""
    while head is not None:
        try:
            _mark_refs(broker, key, head, live, log_start_grace_ms)
        except PenstockError as error:
            now = broker.log.heads([key]).get(key)
            if error.code is not ErrorCode.CORRUPT_SEGMENT or (
                now is not None and now.log_start_offset <= head.log_start_offset
            ):
                raise
            head = now
        else:
            return


def _mark_refs(broker: Broker, key: PartitionKey, head: Head, live: LiveSegments, log_start_grace_ms: int) -> None:
    settled = settled_offset(head, broker.clock.now_ms(), log_start_grace_ms)
    live.add(each.ref.segment_id for each in head.located_tail() if each.end_offset > settled)
    for page in walk_pages(broker.log, key, head, settled, _PAGES_PER_QUERY):
        live.add(each.ref.segment_id for each in page.located() if each.end_offset > settled)
    # After the pages: what a swap takes out of them meanwhile is met here.
    live.add(broker.compaction.retired(key, live.cutoff_ms))


def _check_deleted(broker: Broker, topic: Topic) -> None:
    """Heads go after the topic's name. A head that is missing under a name that stands is damage."""
    now = broker.topics.get(topic.name)
    if now is not None and now.topic_id == topic.topic_id:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT,
            f"topic {topic.name!r} has partitions without a head: nothing is swept while the index is damaged",
        )
