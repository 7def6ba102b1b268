"""The reader of a partition's index: every loop over pages is here, and every one that must see all pages checks that.

Pages lie side by side from the log start up to the head's tail. A query does not see a swap of compaction as a whole
(DynamoDB guide, "Isolation level": read-committed). So a gap counts only if a second look meets it too. It then has
one of two causes:

1. Retention deleted pages after the head was read. A newer head has a higher log start.
2. The index is damaged.

The reader raises CORRUPT_SEGMENT in both cases. A caller that may be slower than retention's grace reads the head again
and tells the two apart, as `refs_of` and the sweep's mark do.

`pages_per_query` is one of the `INDEX_…_PAGES` of limits.py. No function asks for a page before its caller wants one.

The age of the index: the creation of its first topic.

The sweep leaves an object that is older (sweep.py). The time is kept where cursors are, so that it outlives the topic.
It is noted before the topic can be written to. Retention and sweep note it too, for topics from before this was kept.

All refs of a partition in order, for readers that may take longer than retention's grace.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import INDEX_LOOK_PAGES, INDEX_READS_MAX, INDEX_REPEAT_PAGES, REPEAT_PAGES_MAX
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.repair import NamedRef
from penstock_core.log.retention import written_ms
from penstock_core.log.topic import Topic
from penstock_core.zones.zone_state import Cursor
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.ports.runtime import JobCursors
from penstock_service.stores import Stores

_NAME = "index-since"
_CLOCKS_APART_MS = 1_000  # the clock that names a topic's first segment may be behind the one that dated its creation


def pages_forward(log: LogIndex, key: PartitionKey, head: Head, offset: Offset, pages_per_query: int) -> Iterator[Page]:
    """The pages from the one that covers `offset` up to the head's tail, oldest first.

    Each page begins where the page before it ends. If a swap merged pages meanwhile, a page may begin below that
    place: the reader then cuts off the refs that the caller has met. Pages below the log start may be missing if
    `offset` lies below it. One query for each `pages_per_query` pages. Raises CORRUPT_SEGMENT at a gap.
    """
    return _forward(log, key, offset, head.tail_base, head.log_start_offset, pages_per_query)


def pages_between(
    log: LogIndex, key: PartitionKey, start_offset: Offset, end_offset: Offset, pages_per_query: int
) -> Iterator[Page]:
    """The pages that cover `[start_offset, end_offset)`, whatever the log start is.

    The first and the last may reach beyond the range. Costs and errors are those of `pages_forward`.
    """
    return _forward(log, key, start_offset, end_offset, start_offset, pages_per_query)


def pages_backward(log: LogIndex, key: PartitionKey, head: Head, pages_per_query: int) -> Iterator[Page]:
    """The pages from the head's tail down to the one that covers the log start, newest first.

    If a swap merged pages meanwhile, the reader cuts off the refs that the caller has met. One query for each
    `pages_per_query` pages, and one more where pages do not lie side by side. Raises CORRUPT_SEGMENT at a gap.
    """
    below = head.tail_base
    while below > head.log_start_offset:
        before = below
        for page in log.pages_before(key, below, pages_per_query):
            if page.end_offset < below:
                break
            yield page
            below = page.base_offset
            if below <= head.log_start_offset:
                return
        if below == before:
            page = _up_to(page_at(log, key, Offset(below - 1)), below)
            yield page
            below = page.base_offset


def pages_below(log: LogIndex, key: PartitionKey, below: Offset | None, pages_per_query: int) -> Iterator[Page]:
    """The pages that end at `below` or before it (None: all pages), oldest first.

    For a caller that deletes them. It does not check for gaps, because another run may delete pages too. One query for
    each `pages_per_query` pages.
    """
    offset = Offset(0)
    while True:
        pages = log.pages(key, offset, pages_per_query)
        for page in pages:
            if below is not None and page.end_offset > below:
                return
            yield page
            offset = page.end_offset
        if len(pages) < pages_per_query:
            return


def page_at(log: LogIndex, key: PartitionKey, offset: Offset) -> Page:
    """The page that covers `offset`. One query, two if the first finds none. Raises CORRUPT_SEGMENT."""
    for _ in range(INDEX_READS_MAX):
        pages = log.pages(key, offset, 1)
        if pages and pages[0].base_offset <= offset:
            return pages[0]
    raise _gap(key, offset)


def head_past_gap(log: LogIndex, key: PartitionKey, offset: Offset, error: PenstockError) -> Head | None:
    """The head whose log start has passed `offset`, where a reader has met the gap `error`.

    None if the partition is gone. One read. Raises `error` if the log start has not passed: then the index is damaged,
    or did not answer.
    """
    if error.code is not ErrorCode.CORRUPT_SEGMENT:
        raise error
    head = log.heads([key]).get(key)
    if head is not None and head.log_start_offset <= offset:
        raise error
    return head


def _forward(
    log: LogIndex, key: PartitionKey, offset: Offset, end_offset: Offset, removed_below: Offset, pages_per_query: int
) -> Iterator[Page]:
    """The pages that cover `[offset, end_offset)`; those below `removed_below` may be missing."""
    is_first, reads_in_vain = True, 0
    while offset < end_offset:
        pages = log.pages(key, offset, pages_per_query)
        if not pages and removed_below >= end_offset:
            return
        before = offset
        for page in pages:
            if page.base_offset > max(offset, removed_below):
                break
            if page.base_offset >= end_offset:  # it left the tail after the caller read the head
                return
            if page.end_offset > offset:
                yield page if is_first else _from(page, offset)
                is_first, offset = False, page.end_offset
        reads_in_vain = reads_in_vain + 1 if offset == before else 0
        if reads_in_vain == INDEX_READS_MAX:
            raise _gap(key, offset)


def _from(page: Page, offset: Offset) -> Page:
    """The page from the ref on that covers `offset`."""
    if page.base_offset >= offset:
        return page
    located = [each for each in page.located() if each.end_offset > offset]
    return replace(page, base_offset=located[0].base_offset, refs=tuple(each.ref for each in located))


def _up_to(page: Page, below: Offset) -> Page:
    """The page up to the ref that covers the offset before `below`."""
    located = [each for each in page.located() if each.base_offset < below]
    return replace(page, refs=tuple(each.ref for each in located))


def _gap(key: PartitionKey, offset: Offset) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"the index of partition {key} has no page for offset {offset} below its tail"
    )


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
    return max(0, instance.clock.now_ms() - written_ms(ref_at(instance, key, head, offset).ref))


def ref_at(instance: Instance, key: PartitionKey, head: Head, offset: Offset) -> LocatedRef:
    """The ref that covers an offset that the head holds. One query if it is not in the tail."""
    located = head.located_tail() if offset >= head.tail_base else page_at(instance.stores.log, key, offset).located()
    [found] = [each for each in located if each.base_offset <= offset < each.end_offset]
    return found


def refs_of(log: LogIndex, key: PartitionKey, offset: int) -> Iterator[LocatedRef]:
    """The refs from the one that covers `offset` up to the high watermark of the first look.

    There are none if the partition is gone.

    The head is read before the pages, so a ref that a roll moves meanwhile is met in one of the two. If retention
    deletes pages meanwhile, the reader goes on at the log start of a newer head. One read, and a query for each 4
    pages as the caller takes them. Raises CORRUPT_SEGMENT if the index has a gap.
    """
    head = log.heads([key]).get(key)
    if head is None:
        return
    position, end_offset = Offset(max(offset, head.log_start_offset)), head.next_offset
    while head is not None and position < end_offset:
        try:
            for page in pages_forward(log, key, head, position, INDEX_LOOK_PAGES):
                yield from (each for each in page.located() if each.end_offset > position)
                position = page.end_offset
        except PenstockError as error:
            head = head_past_gap(log, key, position, error)
            position = position if head is None else head.log_start_offset
            continue
        for located in head.located_tail():
            if located.end_offset > position and located.base_offset < end_offset:
                yield located
        return


def refs_from(
    stores: Stores, cursor: Cursor, is_too_new: Callable[[Ref], bool] = lambda _: False
) -> Iterator[tuple[NamedRef, Cursor]]:
    """Every ref of the index from `cursor` on, each with the cursor behind it.

    The order is that of topic names and partitions.

    A partition ends at its first ref that `is_too_new`. One read of the topics, and per partition what `refs_of` costs,
    as the caller takes the refs. Raises what these raise.
    """
    for topic in stores.topics.list():
        for partition in topic.all_partitions():
            if (topic.name, partition) < (cursor.topic, cursor.partition):
                continue
            key = PartitionKey(topic.topic_id, partition)
            offset = cursor.offset if (topic.name, partition) == (cursor.topic, cursor.partition) else 0
            for located in refs_of(stores.log, key, offset):
                if is_too_new(located.ref):
                    break
                yield NamedRef(key=key, located=located), Cursor(topic.name, partition, located.end_offset)


def find_ref(log: LogIndex, key: PartitionKey, head: Head, is_wanted: Callable[[Ref], bool]) -> LocatedRef | None:
    """The newest ref that `is_wanted`, in the head's tail or in the pages below it; None if neither has one.

    One query for each 100 pages down to the ref, or to the log start, but `REPEAT_PAGES_MAX` pages at most. A caller
    that comes later is told that the place is not known, and does not time out each time that it asks. An error carries
    `maybe_applied`: the ref that could not be looked for is the trace of an earlier write.
    """
    for located in reversed(head.located_tail()):
        if is_wanted(located.ref):
            return located
    try:
        for page in islice(pages_backward(log, key, head, INDEX_REPEAT_PAGES), REPEAT_PAGES_MAX):
            for located in reversed(page.located()):
                if is_wanted(located.ref):
                    return located
    except PenstockError as error:
        raise PenstockError(error.code, error.message, maybe_applied=True, **error.facts) from error
    return None
