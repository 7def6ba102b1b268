"""The age of a record, by the ref that covers it."""

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.retention import written_ms
from penstock_service.index.reader import page_at
from penstock_service.instance.instance import Instance


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
