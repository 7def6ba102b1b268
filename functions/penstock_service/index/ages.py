"""The age of the index: the creation of its first topic.

The sweep leaves an object that is older (sweep.py). The time is kept where cursors are, so that it outlives the topic.
It is noted before the topic can be written to. Retention and sweep note it too, for topics from before this was kept.
"""

from collections.abc import Sequence

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.retention import written_ms
from penstock_core.log.topic import Topic
from penstock_service.index.reader import page_at
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import JobCursors

_NAME = "index-since"
_CLOCKS_APART_MS = 1_000  # the clock that names a topic's first segment may be behind the one that dated its creation


def note_index_age(cursors: JobCursors, topics: Sequence[Topic]) -> int | None:
    """Notes and gives the time since when segments may be this index's; None if it has never had a topic.

    One read, and a write if the time goes down. If two calls write at once, one may put back a time that the other has
    lowered. Then the sweep leaves objects from before that time, until a run finds the older topic again.
    """
    stored = cursors.get(_NAME)
    known = [int(stored)] if stored is not None else []
    known += [topic.created_at_ms - _CLOCKS_APART_MS for topic in topics]
    since_ms = min(known, default=None)
    if since_ms is not None and str(since_ms) != stored:
        cursors.put(_NAME, str(since_ms))
    return since_ms


def record_age_ms(instance: Instance, key: PartitionKey, head: Head, offset: Offset) -> int | None:
    """Milliseconds since the append of the record at `offset`; None if there is no such record yet.

    It counts as retention does (`written_ms`). One query if the record is not in the tail.
    """
    offset = head.next_record(offset)
    if offset >= head.next_offset:
        return None
    located = head.located_tail() if offset >= head.tail_base else page_at(instance.stores.log, key, offset).located()
    [ref] = [each.ref for each in located if each.base_offset <= offset < each.end_offset]
    return max(0, instance.clock.now_ms() - written_ms(ref))
