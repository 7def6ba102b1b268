from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset, SegmentId
from penstock_core.limits import RETIRED_KEPT_MS
from penstock_core.storage.compaction_item import parse_retired, retired_item, retired_key
from tests.core.storage.stored_values import KEY

SEGMENT_IDS = st.binary(min_size=16, max_size=16).map(SegmentId)


@given(st.sets(SEGMENT_IDS, max_size=5))
def test_retired_segments_survive_a_round_trip_in_ascending_order(segments: set[SegmentId]) -> None:
    assert parse_retired(retired_item(KEY, 5_000, Offset(70), segments)) == sorted(segments)


def test_retired_item_is_what_is_stored_today() -> None:
    one, two = SegmentId(b"1" * 16), SegmentId(b"2" * 16)
    assert retired_item(KEY, 5_000, Offset(70), [two, one]) == {
        "pk": {"S": "00ff#7"},
        "sk": {"S": "retired#000000000005000#00000000000000000070"},
        "segments": {"B": one + two},
        "expires_at_s": {"N": str(5 + RETIRED_KEPT_MS // 1_000)},
    }


@given(st.integers(0, 2**48), st.integers(0, 2**48))
def test_retired_keys_sort_by_time(one: int, other: int) -> None:
    assert (retired_key(one, 70) < retired_key(other, 70)) == (one < other)
