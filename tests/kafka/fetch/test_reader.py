from penstock_core.records.record_batch import crc_is_valid, walk
from penstock_kafka.fetch.reader import empty_batch


def test_empty_batch_covers_the_offsets_and_has_no_records() -> None:
    data = empty_batch(40, 47)
    ((position, header),) = walk(data)
    assert (header.base_offset, header.next_offset, header.record_count) == (40, 47, 0)
    assert crc_is_valid(data, position, header)
