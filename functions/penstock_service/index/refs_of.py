"""All refs of a partition in order, for readers that may take longer than retention's grace."""

from collections.abc import Iterator

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import INDEX_LOOK_PAGES
from penstock_core.log.ref import LocatedRef
from penstock_service.index.reader import head_past_gap, pages_forward
from penstock_service.ports.log import LogIndex


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
