"""The pages of one partition in order, held to be without gap.

Pages lie without gap from the log start on, unless they were deleted while somebody read, who held an older head: that
one meets a gap here, and finds a higher log start when it looks again.
"""

from collections.abc import Iterator

from penstock_broker.ports import LogIndex
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head, Page
from penstock_core.keys import PartitionKey


def walk_pages(log: LogIndex, key: PartitionKey, head: Head, offset: Offset, per_query: int) -> Iterator[Page]:
    """From the page that covers `offset` up to the head's tail, each where the one before ends.

    Pages below the log start may be missing, if `offset` lies below it. One query for each `per_query` pages, as far as
    they are taken. Raises CORRUPT_SEGMENT at a gap.
    """
    while offset < head.tail_base:
        pages = log.pages(key, offset, per_query)
        if not pages and head.log_start_offset >= head.tail_base:
            return
        if not pages:
            raise _gap(key, offset)
        for page in pages:
            if page.base_offset > max(offset, head.log_start_offset):
                raise _gap(key, offset)
            if page.base_offset >= head.tail_base:  # rolled since: in this head it is the tail
                return
            yield page
            offset = page.end_offset


def page_at(log: LogIndex, key: PartitionKey, offset: Offset) -> Page:
    """The page that covers `offset`. One query. Raises CORRUPT_SEGMENT if there is none."""
    pages = log.pages(key, offset, 1)
    if not pages or pages[0].base_offset > offset:
        raise _gap(key, offset)
    return pages[0]


def _gap(key: PartitionKey, offset: Offset) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"the index of partition {key} has no page for offset {offset} below its tail"
    )
