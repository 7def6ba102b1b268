"""All refs of a partition in order, for readers that may take longer than retention's grace."""

from collections.abc import Callable, Iterator
from itertools import islice

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import INDEX_LOOK_PAGES, INDEX_REPEAT_PAGES, REPEAT_PAGES_MAX
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.repair import NamedRef
from penstock_core.zones.catch_up import Cursor
from penstock_service.index.reader import head_past_gap, pages_backward, pages_forward
from penstock_service.ports.log import LogIndex
from penstock_service.stores import Stores


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
