"""The records that an acquire may lock, by their bytes: what it locks and cannot answer with goes back by a write."""

from penstock_core.log.index import Head


def records_within(head: Head, position: int, bytes_max: int, records_max: int) -> int:
    """The number of fresh records that take about `bytes_max` as stored, 1 to `records_max`.

    It goes by the refs in the head's tail, as if the records of one ref had one size. Where it does not know, or where
    there are no fresh records, it is `records_max`.
    """
    start = head.next_record(position)
    if not head.tail_base <= start < head.next_offset:
        return records_max
    count = 0
    for located in head.located_tail():
        records = located.end_offset - max(start, located.base_offset)
        if records <= 0:
            continue
        fitting = bytes_max * located.ref.offset_span // located.ref.length
        count += min(records, fitting)
        if fitting < records or count >= records_max:
            break
        bytes_max -= located.ref.length * records // located.ref.offset_span
    return max(1, min(count, records_max))
