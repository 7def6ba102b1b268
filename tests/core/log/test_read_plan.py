from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset, SegmentId
from penstock_core.log.read_plan import GAP_BYTES_MAX, choose, cut, join_ranges
from penstock_core.log.ref import LocatedRef, Ref, locate
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from tests.core.log.test_ref import GOLDEN


def refs_of(*lengths: int) -> list[LocatedRef]:
    return list(locate(0, [replace(GOLDEN, length=length, offset_span=10) for length in lengths]))


def test_choose_starts_with_the_ref_that_covers_the_offset() -> None:
    refs = refs_of(100, 100, 100)
    assert choose(refs, 0, 1000, 9, is_first=False) == refs
    assert choose(refs, 9, 1000, 9, is_first=False) == refs
    assert choose(refs, 10, 1000, 9, is_first=False) == refs[1:]
    assert choose(refs, 30, 1000, 9, is_first=True) == []


def test_choose_keeps_the_budgets() -> None:
    refs = refs_of(100, 100, 100)
    assert choose(refs, 0, 250, 9, is_first=False) == refs[:2]
    assert choose(refs, 0, 1000, 1, is_first=False) == refs[:1]
    assert choose(refs, 0, 99, 9, is_first=False) == []


def test_choose_moves_on_when_the_first_ref_alone_is_over_the_budget() -> None:
    refs = refs_of(100, 1, 1)
    assert choose(refs, 0, 50, 9, is_first=True) == refs[:1]


_PLACED = st.builds(
    lambda segment, position, length: LocatedRef(
        base_offset=Offset(0),
        ref=replace(GOLDEN, segment_id=SegmentId(bytes([segment]) * 16), position=position, length=length),
    ),
    st.integers(0, 2),
    st.integers(0, 10 * GAP_BYTES_MAX),
    st.integers(1, GAP_BYTES_MAX),
)


@given(st.lists(_PLACED, max_size=20))
def test_join_ranges_covers_every_ref_once(refs: list[LocatedRef]) -> None:
    ranges = join_ranges(refs)
    covered = [located for joined in ranges for located in joined.refs]
    assert sorted(covered, key=repr) == sorted(refs, key=repr)
    for joined in ranges:
        for located in joined.refs:
            ref: Ref = located.ref
            assert ref.segment_id == joined.segment_id
            assert joined.position <= ref.position
            assert ref.position + ref.length <= joined.position + joined.length


def test_join_ranges_bridges_small_gaps_within_a_segment_only() -> None:
    def at(segment: int, position: int) -> LocatedRef:
        return LocatedRef(
            base_offset=Offset(0),
            ref=replace(GOLDEN, segment_id=SegmentId(bytes([segment]) * 16), position=position, length=10),
        )

    near, far = at(1, 10 + GAP_BYTES_MAX), at(1, 21 + 2 * GAP_BYTES_MAX)
    ranges = join_ranges([far, at(2, 0), near, at(1, 0)])
    assert [(joined.segment_id[0], joined.position, joined.length) for joined in ranges] == [
        (1, 0, 20 + GAP_BYTES_MAX),
        (1, 21 + 2 * GAP_BYTES_MAX, 10),
        (2, 0, 10),
    ]


BATCHES = [encode([NewRecord(1, None, b"x")] * 2, Compression.NONE) for _ in range(3)]  # offsets 10-11, 12-13, 14-15
SIZE = len(BATCHES[0])


def cut_from(offset: int, max_bytes: int, *, is_first: bool = False) -> tuple[int, int, int]:
    return cut(memoryview(b"".join(BATCHES)), Offset(10), Offset(offset), max_bytes, is_first=is_first)


def test_cut_begins_with_the_batch_that_holds_the_offset() -> None:
    assert cut_from(5, 3 * SIZE) == cut_from(10, 3 * SIZE) == cut_from(11, 3 * SIZE) == (0, 3 * SIZE, 16)
    assert cut_from(13, 3 * SIZE) == (SIZE, 3 * SIZE, 16)


def test_cut_takes_whole_batches_within_the_budget() -> None:
    assert cut_from(12, 2 * SIZE - 1) == (SIZE, 2 * SIZE, 14)


def test_cut_is_empty_when_no_batch_fits_or_holds_the_offset() -> None:
    assert cut_from(12, SIZE - 1) == (0, 0, 12)
    assert cut_from(16, 3 * SIZE, is_first=True) == (0, 0, 16)


def test_cut_has_one_batch_over_the_budget_when_it_is_the_first() -> None:
    assert cut_from(12, 1, is_first=True) == (SIZE, 2 * SIZE, 14)
