"""Find a ref from the newest down: where records are that were appended before."""

from collections.abc import Callable
from itertools import islice

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import INDEX_REPEAT_PAGES, REPEAT_PAGES_MAX
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef, Ref
from penstock_service.index.reader import pages_backward
from penstock_service.ports.log import LogIndex


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
