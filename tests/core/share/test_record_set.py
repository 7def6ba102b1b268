from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.share.record_set import EMPTY, RecordSet, normalized
from tests.core.share.share_samples import HASHED_SETS, RECORD_SETS

SETS = st.one_of(RECORD_SETS, HASHED_SETS)


def pairs(records: RecordSet) -> dict[int, int]:
    return records.hash_by_offset() or dict.fromkeys(records.offsets(), 0)


def is_sound(records: RecordSet) -> bool:
    return records.ranges == normalized(records.ranges) and len(records.hashes) in (0, records.count)


@given(SETS, RECORD_SETS)
def test_parts_have_the_offsets_and_hashes_of_the_whole(records: RecordSet, other: RecordSet) -> None:
    inside, outside = records.only(other.ranges), records.minus(other.ranges)
    assert is_sound(inside)
    assert is_sound(outside)
    assert pairs(inside) == {offset: value for offset, value in pairs(records).items() if offset in {*other.offsets()}}
    assert pairs(outside) == {key: value for key, value in pairs(records).items() if key not in {*other.offsets()}}
    assert inside.plus(outside) == records


@given(SETS, st.integers(0, 70))
def test_first_has_the_lowest_offsets(records: RecordSet, count: int) -> None:
    first = records.first(count)
    assert [*first.offsets()] == [*records.offsets()][:count]
    assert first.hashes == records.hashes[:count]


@given(SETS, st.integers(0, 100))
def test_shift_is_undone_by_the_opposite_one(records: RecordSet, distance: int) -> None:
    shifted = records.shifted(distance)
    assert [*shifted.offsets()] == [offset + distance for offset in records.offsets()]
    assert shifted.shifted(-distance) == records


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_normalized_ranges_have_the_same_offsets_and_do_not_touch(ranges: list[tuple[int, int]]) -> None:
    found = normalized(ranges)
    assert {*RecordSet(found).offsets()} == {offset for start, end in ranges for offset in range(start, end)}
    assert all(one[1] < other[0] for one, other in pairwise(found))


def test_empty_set_has_no_records() -> None:
    assert (EMPTY.count, [*EMPTY.offsets()], EMPTY.hash_by_offset()) == (0, [], {})


def test_bounds_are_those_of_the_outer_records() -> None:
    records = RecordSet(((3, 5), (9, 10)))
    assert (records.start, records.end, records.count) == (3, 10, 3)
