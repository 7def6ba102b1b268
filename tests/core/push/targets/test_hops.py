import pytest

from penstock_core.limits import PUSH_HOPS_MAX
from penstock_core.push.targets.target import HOPS_HEADER, copied
from penstock_core.records.codec import NewRecord
from penstock_core.share.dead_letter import own_headers
from tests.support.push_records import StoredRecord


def test_copy_is_the_record_with_one_hop_more() -> None:
    record = StoredRecord(offset=4, timestamp=9, key=b"k", value=None, headers=[("a", b"1"), (HOPS_HEADER, b"1")])
    headers = [("a", b"1"), (HOPS_HEADER, b"2")]
    assert copied(record, 7) == NewRecord(timestamp_ms=9, key=b"k", value=None, headers=headers)


def test_record_is_copied_so_often_and_no_more() -> None:
    record = StoredRecord(offset=0)
    for hops in range(1, PUSH_HOPS_MAX + 1):
        copy = copied(record, 7)
        assert copy is not None
        assert copy.headers == [(HOPS_HEADER, b"%d" % hops)]
        record = StoredRecord(offset=0, headers=copy.headers)
    assert copied(record, 7) is None


@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"9" * 5_000, "٣".encode()])
def test_count_that_is_no_number_counts_as_none(value: bytes | None) -> None:
    copy = copied(StoredRecord(offset=0, headers=[(HOPS_HEADER, value)]), 7)
    assert copy is not None
    assert copy.headers == [(HOPS_HEADER, b"1")]


def test_largest_count_counts() -> None:
    assert copied(StoredRecord(offset=0, headers=[(HOPS_HEADER, b"3"), (HOPS_HEADER, b"0")]), 7) is None


def test_dead_letter_keeps_the_count() -> None:
    assert own_headers([(HOPS_HEADER, b"2")]) == [(HOPS_HEADER, b"2")]
