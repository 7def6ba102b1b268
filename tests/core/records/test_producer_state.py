"""A partition's verdict on an idempotent producer's batches. Its condition on stored bytes says the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.acls.principal import iam_principal
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.producer_state import (
    NO_OWNER,
    OWNER_BYTES,
    SEQUENCE_MAX,
    SERVICE_OWNER,
    ProducerSequence,
    ProducerState,
    Verdict,
    decode_state,
    encode_state,
    entries_equal,
    entries_preceding,
    is_strangers,
    judge,
    longest_silent,
    merge_sequences,
    owner_of,
    state_after,
)

EPOCHS = st.integers(0, 3) | st.integers(0, 2**15 - 1)
SMALL = st.integers(0, 6) | st.integers(0, SEQUENCE_MAX)
STATES = st.builds(
    ProducerState,
    epoch=EPOCHS,
    last_sequence=SMALL,
    written_ms=st.integers(0, 2**48 - 1),
    checksum=st.integers(0, 2**32 - 1),
    owner=st.just(NO_OWNER) | st.binary(min_size=OWNER_BYTES, max_size=OWNER_BYTES),
)


def sequence(first: int, last: int, epoch: int = 0, producer_id: int = 7) -> ProducerSequence:
    return ProducerSequence(producer_id=producer_id, epoch=epoch, first_sequence=first, last_sequence=last)


SEQUENCES = st.tuples(SMALL, st.integers(0, 5), EPOCHS).map(
    lambda drawn: sequence(drawn[0], min(SEQUENCE_MAX, drawn[0] + drawn[1]), drawn[2])
)


def precedes(state: ProducerState, new: ProducerSequence) -> bool:
    """True if `new` follows `state`: what `judge` and `entries_preceding` say, in other words."""
    if is_strangers(state, new):
        return False
    if new.first_sequence == 0:
        return state.epoch < new.epoch
    return (state.epoch, state.last_sequence) == (new.epoch, new.first_sequence - 1)


@given(STATES)
def test_state_survives_a_round_trip(state: ProducerState) -> None:
    assert decode_state(encode_state(state), state.owner) == state


def test_state_bytes_are_what_is_stored_today() -> None:
    state = ProducerState(epoch=1, last_sequence=2, written_ms=3, checksum=4)
    assert encode_state(state).hex() == "00010000000200000000000300000004"


@given(STATES, SEQUENCES)
def test_strangers_are_refused_whatever_they_claim(state: ProducerState, new: ProducerSequence) -> None:
    state = replace(state, owner=b"someones")
    for owner in (NO_OWNER, SERVICE_OWNER, b"anothers"):
        forged = replace(new, owner=owner)
        assert not precedes(state, forged)
        with pytest.raises(PenstockError) as refused:
            judge(state, forged)
        assert (refused.value.code, refused.value.maybe_applied) == (ErrorCode.ACCESS_DENIED, False)


def test_owner_is_the_principal_and_an_old_entry_has_none() -> None:
    mine, other = (owner_of(iam_principal(f"arn:aws:iam::1:role/{name}").digest) for name in ("mine", "other"))
    assert (len(mine), mine == other, owner_of("")) == (OWNER_BYTES, False, SERVICE_OWNER)
    old = ProducerState(epoch=0, last_sequence=2, written_ms=1)
    following = replace(sequence(3, 4), owner=mine)
    assert judge(old, following) is Verdict.FOLLOWS
    assert precedes(old, following)
    assert state_after(following, 9).owner == mine


@pytest.mark.parametrize("data", [b"", bytes(12), bytes(15), bytes(17)])
def test_decode_state_refuses_what_is_none(data: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_state(data)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


@given(STATES, SEQUENCES)
def test_bounds_of_stored_entries_say_what_precedes_says(state: ProducerState, new: ProducerSequence) -> None:
    bounds = entries_preceding(new)
    new = replace(new, owner=state.owner)
    assert (bounds is not None and bounds[0] <= encode_state(state) <= bounds[1]) == precedes(state, new)


@given(STATES, SEQUENCES)
def test_judge_lets_follow_just_what_the_condition_takes(state: ProducerState, new: ProducerSequence) -> None:
    new = replace(new, owner=state.owner)
    code = _refusal(state, new)
    assert (code is None and judge(state, new) is Verdict.FOLLOWS) == precedes(state, new)
    assert (code is ErrorCode.PRODUCER_FENCED) == (new.epoch < state.epoch)
    assert code in (None, ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE)


def _refusal(state: ProducerState, new: ProducerSequence) -> ErrorCode | None:
    try:
        judge(state, new)
    except PenstockError as error:
        return error.code
    return None


@given(st.lists(SEQUENCES, max_size=12))
def test_judge_takes_each_sequence_of_the_newest_epoch_once(sequences: list[ProducerSequence]) -> None:
    state: ProducerState | None = None
    taken: set[tuple[int, int]] = set()
    for each in sequences:
        try:
            verdict = judge(state, each)
        except PenstockError:
            continue
        numbers = {(each.epoch, number) for number in range(each.first_sequence, each.last_sequence + 1)}
        if verdict is Verdict.FOLLOWS:
            assert not numbers & taken
            taken |= numbers
            state = state_after(each, 5_000)
        else:
            assert numbers <= taken


def test_judge_names_what_is_missing() -> None:
    with pytest.raises(PenstockError, match="10 must come first") as caught:
        judge(ProducerState(epoch=0, last_sequence=9, written_ms=0), sequence(12, 13))
    assert caught.value.facts["expected_sequence"] == 10
    with pytest.raises(PenstockError, match="unknown producer"):
        judge(None, sequence(12, 13))


def test_judge_refuses_a_repeat_that_goes_beyond_what_was_taken() -> None:
    with pytest.raises(PenstockError) as caught:
        judge(ProducerState(epoch=0, last_sequence=9, written_ms=0), sequence(5, 10))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE


@given(STATES, STATES)
def test_entries_equal_holds_those_with_the_same_epoch_and_sequence(state: ProducerState, other: ProducerState) -> None:
    lowest, highest = entries_equal(state)
    order, other_order = (state.epoch, state.last_sequence), (other.epoch, other.last_sequence)
    assert lowest <= encode_state(state) <= highest
    assert (lowest <= encode_state(other) <= highest) == (order == other_order)
    assert (encode_state(other) < lowest) == (other_order < order)


@given(st.dictionaries(st.integers(0, 2**63 - 1), STATES, max_size=12), st.integers(-3, 15))
def test_longest_silent_leaves_those_that_wrote_last(producers: dict[int, ProducerState], count: int) -> None:
    leaving = longest_silent(producers, count)
    staying = {each: state for each, state in producers.items() if each not in leaving}
    assert len(leaving) == min(len(producers), max(0, count))
    if leaving and staying:
        assert max(each.written_ms for each in leaving.values()) <= min(each.written_ms for each in staying.values())


def test_longest_silent_tells_milliseconds_apart() -> None:
    producers = {number: ProducerState(epoch=0, last_sequence=0, written_ms=1_000_500 - number) for number in range(9)}
    assert set(longest_silent(producers, 2)) == {7, 8}


def test_merge_joins_batches_that_follow_each_other() -> None:
    assert merge_sequences([sequence(0, 3), sequence(4, 4), sequence(5, 9)]) == sequence(0, 9)
    assert merge_sequences([sequence(2, 3)]) == sequence(2, 3)
    assert merge_sequences([None, None]) is None
    assert merge_sequences([]) is None


@pytest.mark.parametrize(
    "sequences",
    [
        [sequence(0, 3), sequence(5, 6)],
        [sequence(0, 3), sequence(3, 6)],
        [sequence(0, 3), None],
        [None, sequence(0, 3)],
        [sequence(0, 3), sequence(4, 5, epoch=1)],
        [sequence(0, 3), sequence(4, 5, producer_id=8)],
    ],
)
def test_merge_refuses_batches_that_do_not(sequences: list[ProducerSequence | None]) -> None:
    with pytest.raises(PenstockError, match="batch 1 has") as caught:
        merge_sequences(sequences)
    assert caught.value.code is ErrorCode.CORRUPT_BATCH
