"""One stored batch through a filter: which records stay, with which offsets, and where the next look begins."""

from penstock_core.filters.filtered_batch import FilterBudget, filter_batch
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import Compression, parse_header, stamp
from tests.support.poison import undecodable_batch

_EVEN = parse_filter({"parity": ["even"]})


def _stored(parities: list[str], base_offset: int = 100) -> bytes:
    batch = bytearray(
        encode(
            [NewRecord(1_000 + at, None, b"%d" % at, [("parity", each.encode())]) for at, each in enumerate(parities)],
            Compression.GZIP,
        )
    )
    stamp(batch, base_offset)
    return bytes(batch)


def test_records_that_match_keep_their_offsets_and_timestamps() -> None:
    batch = _stored(["odd", "even", "odd", "even"])
    header = parse_header(batch)
    found = filter_batch(batch, header, _EVEN, 0, FilterBudget())
    assert found.data is not None
    assert [(each.offset, each.timestamp, each.value) for each in decode(found.data)] == [
        (101, 1_001, b"1"),
        (103, 1_003, b"3"),
    ]
    assert found.next_offset == 104
    assert parse_header(found.data).compression is header.compression


def test_batch_stays_as_it_is_if_all_of_it_matches() -> None:
    batch = _stored(["even", "even"])
    assert filter_batch(batch, parse_header(batch), _EVEN, 0, FilterBudget()).data is batch


def test_batch_without_a_match_moves_the_reader_behind_it() -> None:
    batch = _stored(["odd", "odd"])
    found = filter_batch(batch, parse_header(batch), _EVEN, 0, FilterBudget())
    assert (found.data, found.next_offset) == (None, 102)


def test_records_below_the_start_are_not_given() -> None:
    batch = _stored(["even", "even", "odd"])
    found = filter_batch(batch, parse_header(batch), _EVEN, 101, FilterBudget())
    assert found.data is not None
    assert [each.offset for each in decode(found.data)] == [101]


def test_batch_is_cut_at_the_record_that_would_spend_the_budget() -> None:
    batch = _stored(["odd", "even", "even", "even"])
    budget = FilterBudget(work_max=4)  # a record and its header count two
    found = filter_batch(batch, parse_header(batch), _EVEN, 0, budget)
    assert found.data is not None
    assert [each.offset for each in decode(found.data)] == [101]
    assert (found.next_offset, budget.is_spent) == (102, True)


def test_undecodable_batch_is_given_whole() -> None:
    batch = undecodable_batch(5)
    found = filter_batch(batch, parse_header(batch), _EVEN, 0, FilterBudget())
    assert (found.data, found.next_offset) == (batch, 5)
