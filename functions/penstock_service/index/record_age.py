"""The age of a record, by the ref that covers it."""

from penstock_core.ids import Offset, PartitionKey, segment_time_ms
from penstock_core.log.index import Head
from penstock_core.log.ref import Tier
from penstock_core.log.retention import written_ms
from penstock_service.index.reader import page_at
from penstock_service.instance.instance import Instance


def record_age_ms(instance: Instance, key: PartitionKey, head: Head, offset: Offset) -> int | None:
    """Milliseconds since the append of the record at `offset`; None if there is no such record yet.

    A segment of the archive does not tell that time: there it counts as retention does (`written_ms`). One query if
    the record is not in the tail.
    """
    if offset >= head.next_offset:
        return None
    located = head.located_tail() if offset >= head.tail_base else page_at(instance.stores.log, key, offset).located()
    [ref] = [each.ref for each in located if each.base_offset <= offset < each.end_offset]
    is_as_appended = ref.tier is not Tier.ARCHIVE and ref.appended_ms is None  # else its segment is of another time
    time_ms = segment_time_ms(ref.segment_id) if is_as_appended else written_ms(ref)
    return max(0, instance.clock.now_ms() - time_ms)
