from hypothesis import given
from hypothesis import strategies as st

from penstock_core.compaction.merging import CleaningState, CompactionState
from penstock_core.ids import Offset
from penstock_core.storage.compaction_item import cleaned_value, compaction_key, parse_compaction
from tests.core.storage.stored_values import COUNTS, KEY, OFFSETS

CLEANED = st.lists(st.builds(CleaningState, end_offset=OFFSETS, at_ms=COUNTS), max_size=5).map(tuple)
ITEM = {"epoch": {"N": "3"}, "deadline_ms": {"N": "9"}}


@given(CLEANED)
def test_state_survives_a_round_trip(cleaned: tuple[CleaningState, ...]) -> None:
    state = parse_compaction(ITEM | {"cleaned": cleaned_value(cleaned)})
    assert state == CompactionState(epoch=3, deadline_ms=9, cleaned=cleaned)


def test_state_of_a_log_that_was_never_cleaned_has_no_marks() -> None:
    assert parse_compaction(ITEM) == CompactionState(epoch=3, deadline_ms=9)


def test_compaction_key_and_marks_are_what_is_stored_today() -> None:
    assert compaction_key(KEY) == {"pk": {"S": "00ff#7"}, "sk": {"S": "compaction"}}
    marks = [CleaningState(end_offset=Offset(1), at_ms=2), CleaningState(end_offset=Offset(3), at_ms=4)]
    assert cleaned_value(marks) == {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}, {"N": "4"}]}
