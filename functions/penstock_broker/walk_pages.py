"""The pages of one partition in order, held to be without gap, while compaction may exchange some for others.

Pages lie without gap from the log start on, unless they were deleted while somebody read, who held an older head: that
one meets a gap here, and finds a higher log start when it looks again. A query does not see a swap at once as a whole
(DynamoDB guide, "Isolation level": read-committed), so a gap counts only when it is still there at a second look.
"""

from collections.abc import Iterator
from dataclasses import replace

from penstock_broker.ports import LogIndex
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head, Page
from penstock_core.keys import PartitionKey

_LOOKS_MAX = 2


def walk_pages(log: LogIndex, key: PartitionKey, head: Head, offset: Offset, per_query: int) -> Iterator[Page]:
    """From the page that covers `offset` up to the head's tail, each where the one before ends, or, if pages were
    exchanged meanwhile, below: then it has the refs only that reach beyond what was met before.

    Pages below the log start may be missing, if `offset` lies below it. One query for each `per_query` pages, as far as
    they are taken. Raises CORRUPT_SEGMENT at a gap.
    """
    is_first, looks_in_vain = True, 0
    while offset < head.tail_base:
        pages = log.pages(key, offset, per_query)
        if not pages and head.log_start_offset >= head.tail_base:
            return
        before = offset
        for page in pages:
            if page.base_offset > max(offset, head.log_start_offset):
                break
            if page.base_offset >= head.tail_base:  # rolled since: in this head it is the tail
                return
            if page.end_offset > offset:
                yield page if is_first else _beyond(page, offset)
                is_first, offset = False, page.end_offset
        looks_in_vain = looks_in_vain + 1 if offset == before else 0
        if looks_in_vain == _LOOKS_MAX:
            raise _gap(key, offset)


def page_at(log: LogIndex, key: PartitionKey, offset: Offset) -> Page:
    """The page that covers `offset`. One query, two if it finds none. Raises CORRUPT_SEGMENT."""
    for _ in range(_LOOKS_MAX):
        pages = log.pages(key, offset, 1)
        if pages and pages[0].base_offset <= offset:
            return pages[0]
    raise _gap(key, offset)


def _beyond(page: Page, offset: Offset) -> Page:
    """The page from the ref on that holds `offset`."""
    if page.base_offset >= offset:
        return page
    located = [each for each in page.located() if each.end_offset > offset]
    return replace(page, base_offset=located[0].base_offset, refs=tuple(each.ref for each in located))


def _gap(key: PartitionKey, offset: Offset) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"the index of partition {key} has no page for offset {offset} below its tail"
    )
