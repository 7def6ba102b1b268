"""Go over all refs of a partition, reading the index as it is needed."""

from collections.abc import Iterator

from penstock_broker.broker import Broker
from penstock_core.ids import Offset
from penstock_core.keys import PartitionKey
from penstock_core.ref import LocatedRef

_PAGES_PER_QUERY = 4


def refs_of(broker: Broker, key: PartitionKey, offset: int) -> Iterator[LocatedRef]:
    """The refs that hold `offset` or what is behind it, of the log as it is at the first look, from its start on; none
    if the partition is gone. The head is read before the pages, so that a ref that is rolled meanwhile is met in one of
    both. One read, and a query for every 4 pages."""
    head = broker.log.heads([key]).get(key)
    if head is None:  # deleted since the topics were listed
        return
    position = max(offset, head.log_start_offset)
    while position < head.tail_base:
        pages = broker.log.pages(key, Offset(position), _PAGES_PER_QUERY)
        for page in pages:
            yield from (each for each in page.located() if position < each.end_offset <= head.tail_base)
        if not pages:
            break
        position = pages[-1].end_offset
    yield from (each for each in head.located_tail() if each.end_offset > max(offset, head.log_start_offset))
