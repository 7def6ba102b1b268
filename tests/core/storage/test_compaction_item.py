from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.compaction.merging import CleaningState, CompactionState, MergedSequence
from penstock_core.ids import Offset
from penstock_core.records.producer_state import SEQUENCE_MAX, ProducerSequence
from penstock_core.storage.compaction_item import (
    cleaned_value,
    compaction_key,
    decode_sequences,
    encode_sequences,
    parse_compaction,
    parse_sequences,
    sequences_item,
    sequences_key,
)
from tests.core.storage.stored_values import COUNTS, KEY, OFFSETS

CLEANED = st.lists(st.builds(CleaningState, end_offset=OFFSETS, at_ms=COUNTS), max_size=5).map(tuple)
ITEM = {"epoch": {"N": "3"}, "deadline_ms": {"N": "9"}}
SEQUENCE = MergedSequence(
    sequence=ProducerSequence(producer_id=2, epoch=3, first_sequence=4, last_sequence=5), base_offset=Offset(6)
)
NUMBERS = st.integers(0, SEQUENCE_MAX)
SEQUENCES = st.builds(
    MergedSequence,
    sequence=st.builds(
        ProducerSequence,
        producer_id=st.integers(-1, 2**63 - 1),
        epoch=st.integers(0, limits.PRODUCER_EPOCH_MAX),
        first_sequence=NUMBERS,
        last_sequence=NUMBERS,
    ),
    base_offset=OFFSETS,
)


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


@given(st.lists(SEQUENCES, max_size=5).map(tuple))
def test_sequences_survive_a_round_trip(sequences: tuple[MergedSequence, ...]) -> None:
    assert parse_sequences(sequences_item(KEY, 5_000, Offset(70), sequences)) == sequences


def test_sequences_have_golden_bytes() -> None:
    data = encode_sequences([SEQUENCE, SEQUENCE])
    assert data[:26].hex() == "0000000000000002" + "0003" + "00000004" + "00000005" + "0000000000000006"
    assert decode_sequences(data) == (SEQUENCE, SEQUENCE)


def test_sequences_item_is_what_is_stored_today() -> None:
    assert sequences_item(KEY, 5_000, Offset(70), [SEQUENCE]) == {
        "pk": {"S": "00ff#7"},
        "sk": {"S": "sequences#00000000000000000070#000000000005000"},
        "sequences": {"B": encode_sequences([SEQUENCE])},
        "expires_at_s": {"N": str(5 + 7 * 86_400)},
    }


@given(OFFSETS, OFFSETS)
def test_sequences_keys_sort_by_offset(one: Offset, other: Offset) -> None:
    assert (sequences_key(one, 9) < sequences_key(other, 9)) == (one < other)


def test_sequences_of_the_largest_run_fit_into_an_item() -> None:
    assert limits.COMPACTION_RUN_PAGES_MAX * limits.TAIL_ROLL_REFS * 26 < 400 * limits.KIB
