from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset, SegmentId
from penstock_core.read_plan import GAP_BYTES_MAX, choose, join_ranges
from penstock_core.ref import LocatedRef, Ref, locate
from tests.core.test_ref import GOLDEN


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
