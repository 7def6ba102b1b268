"""Find a ref from the newest down: where something is that was appended before."""

from collections.abc import Callable

from penstock_broker.broker import Broker
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.ref import LocatedRef, Ref

_PAGES_PER_QUERY = 100


def find_ref(broker: Broker, key: PartitionKey, head: Head, is_wanted: Callable[[Ref], bool]) -> LocatedRef | None:
    """The newest ref that `is_wanted`, in the head's tail or in the pages below it down to the log's start; None if
    there is none any more. One query for each 100 pages."""
    located = head.located_tail()
    below = head.tail_base
    while True:
        found = next((each for each in reversed(located) if is_wanted(each.ref)), None)
        if found is not None or below <= head.log_start_offset:
            return found
        pages = broker.log.pages_before(key, below, _PAGES_PER_QUERY)
        if not pages:
            return None
        located = tuple(each for page in reversed(pages) for each in page.located())
        below = pages[-1].base_offset
