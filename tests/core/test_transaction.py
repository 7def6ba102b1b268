from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import (
    GroupName,
    Nonce,
    Offset,
    Partition,
    PartitionKey,
    SegmentId,
    TopicId,
    TopicName,
    TransactionalId,
)
from penstock_core.records.producer_state import Verdict
from penstock_core.transaction import (
    Begin,
    OffsetCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
    check_transaction_size,
    judge_begin,
    judge_transaction,
    must_renew,
    next_producer_epoch,
)
from tests.core.log.test_ref import GOLDEN
from tests.support.refusals import refused

PRODUCER = TransactionalProducer(transactional_id=TransactionalId("pay"), epoch=2)
ONE, TWO = SegmentId(b"1" * 16), SegmentId(b"2" * 16)
MINE, OTHERS, BEGUN = Nonce(b"m" * 16), Nonce(b"o" * 16), Nonce(b"b" * 16)
STATE = TransactionState(producer_id=7, epoch=2, number=4, segments=(ONE,))
NONCED = replace(STATE, nonce=MINE, begins=(BEGUN, OTHERS))
BEGIN = Begin(nonce=MINE, principal="role")
NOW_MS = 1_900_000_000_000
END_S = NOW_MS // 1_000 + 90 * 24 * 3_600
KEYS = [PartitionKey(TopicId("0a" * 10), Partition(number)) for number in range(limits.TRANSACTION_PARTS_MAX + 1)]
OFFSET = OffsetCommit(
    group=GroupName("billing"),
    committed=CommittedOffset(
        topic=TopicName("orders"), partition=KEYS[0], offset=Offset(1), metadata="", committed_at_ms=0
    ),
    token=None,
    may_create=False,
)


def test_first_instance_begins_with_epoch_0_and_nothing_committed() -> None:
    first = next_producer_epoch(None, 9, BEGIN, NOW_MS)
    assert first == TransactionState(
        producer_id=9, epoch=0, number=NOW_MS - 1, expires_at_s=END_S, begins=(MINE,), principal="role"
    )
    assert judge_transaction(first, replace(PRODUCER, epoch=0, principal="role"), NOW_MS, MINE) is Verdict.FOLLOWS


@given(st.integers(0, limits.PRODUCER_EPOCH_MAX), st.integers(-1, 2**40))
def test_next_epoch_keeps_what_was_committed(epoch: int, number: int) -> None:
    before = replace(STATE, epoch=epoch, number=number)
    after = next_producer_epoch(before, 9, BEGIN, NOW_MS)
    assert (after.number, after.segments, after.nonce) == (before.number, before.segments, before.nonce)
    assert after.expires_at_s == END_S
    has_run_out = epoch == limits.PRODUCER_EPOCH_MAX
    assert (after.producer_id, after.epoch) == ((9, 0) if has_run_out else (7, epoch + 1))


def test_transaction_names_each_segment_once() -> None:
    refs = [replace(GOLDEN, segment_id=segment_id) for segment_id in (TWO, ONE, TWO)]
    transaction = Transaction(
        producer=PRODUCER, number=5, expires_at_s=END_S, nonce=MINE, refs={KEYS[0]: refs[:2], KEYS[1]: refs[2:]}
    )
    assert transaction.segments == (TWO, ONE)


@pytest.mark.parametrize(
    ("epoch", "number", "segments", "verdict"),
    [
        (2, 5, (TWO,), Verdict.FOLLOWS),
        (2, 5, (), Verdict.FOLLOWS),
        (2, 4, (), Verdict.REPEATS),
        (2, 4, (ONE,), Verdict.REPEATS),
        (1, 4, (ONE,), Verdict.REPEATS),  # an attempt whose answer was lost, and whose epoch is over
    ],
)
def test_transaction_follows_or_repeats(
    epoch: int, number: int, segments: tuple[SegmentId, ...], verdict: Verdict
) -> None:
    assert judge_transaction(STATE, replace(PRODUCER, epoch=epoch), number, segments=segments) is verdict


@pytest.mark.parametrize(
    ("state", "epoch", "number", "maybe_applied", "known"),
    [(STATE, 1, 4, True, 2), (STATE, 1, 5, False, 2), (STATE, 3, 5, False, 2), (None, 0, 0, True, None)],
)
def test_transaction_of_another_epoch_is_fenced(
    state: TransactionState | None, epoch: int, number: int, maybe_applied: bool, known: int | None
) -> None:
    with pytest.raises(PenstockError) as caught:
        judge_transaction(state, replace(PRODUCER, epoch=epoch), number)
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert (caught.value.maybe_applied, caught.value.facts["epoch"]) == (maybe_applied, known)


@pytest.mark.parametrize("number", [3, 6])
def test_transaction_out_of_order_is_refused_with_the_next_number(number: int) -> None:
    with pytest.raises(PenstockError) as caught:
        judge_transaction(STATE, PRODUCER, number, MINE)
    assert (caught.value.code, caught.value.facts) == (ErrorCode.OUT_OF_ORDER_SEQUENCE, {"expected_sequence": 5})
    assert caught.value.maybe_applied is (number < 4), "a lower number may have been committed before"


def test_forgotten_id_tells_nothing_of_its_transactions() -> None:
    """A number below all would say that none of them was committed."""
    with pytest.raises(PenstockError) as caught:
        judge_transaction(None, PRODUCER, 5, MINE)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.PRODUCER_FENCED, True)
    assert caught.value.facts == {"epoch": None, "last_transaction": None, "last_nonce": ""}
    again = Begin(nonce=MINE, last=(7, 2))
    begun = refused(ErrorCode.PRODUCER_FENCED, lambda: judge_begin(None, PRODUCER.transactional_id, again))
    assert begun.facts == caught.value.facts


@given(st.integers(0, 2**42), st.integers(0, 2**42), st.integers(0, 2**20))
def test_forgotten_id_goes_on_above_all_its_numbers(first_ms: int, used_ms: int, epoch: int) -> None:
    """An item takes fewer than 1,000 commits a second, so its number stays behind the clock."""
    old = next_producer_epoch(None, 9, BEGIN, first_ms)
    last_number = old.number + used_ms
    forgotten_ms = first_ms + used_ms + limits.TRANSACTIONAL_ID_KEPT_MS
    new = next_producer_epoch(None, 10, BEGIN, forgotten_ms)
    assert new.number > last_number
    assert new.number <= limits.OFFSET_MAX
    zombie = replace(PRODUCER, epoch=epoch % 2, principal="role")
    with pytest.raises(PenstockError) as caught:
        judge_transaction(new, zombie, last_number, OTHERS)
    assert caught.value.maybe_applied, "it may have been committed in the life before"


@pytest.mark.parametrize(("left_ms", "must"), [(24 * 3_600_000, False), (24 * 3_600_000 - 1, True), (-1, True)])
def test_id_is_renewed_when_its_end_is_near_or_over(left_ms: int, must: bool) -> None:
    assert must_renew(replace(STATE, expires_at_s=END_S), END_S * 1_000 - left_ms) is must
    assert not must_renew(STATE, NOW_MS), "an item of an earlier version has no end"


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_transaction_with_the_nonce_of_the_last_is_a_repeat_whatever_has_begun_since(epoch: int) -> None:
    assert judge_transaction(NONCED, replace(PRODUCER, epoch=epoch), 4, MINE) is Verdict.REPEATS


def test_transaction_with_the_last_number_and_another_nonce_is_no_repeat() -> None:
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: judge_transaction(NONCED, PRODUCER, 4, OTHERS))


@pytest.mark.parametrize(("number", "maybe_applied"), [(3, True), (4, False), (5, False)])
def test_fenced_transaction_was_surely_not_committed_when_its_number_has_another_nonce(
    number: int, maybe_applied: bool
) -> None:
    zombie = replace(PRODUCER, epoch=1)
    with pytest.raises(PenstockError) as caught:
        judge_transaction(NONCED, zombie, number, OTHERS)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.PRODUCER_FENCED, maybe_applied)
    assert caught.value.facts == {"epoch": 2, "last_transaction": 4, "last_nonce": MINE.hex()}


def test_begin_finds_its_own_epoch_when_it_repeats() -> None:
    for last in (None, (7, 1), (7, 2)):
        assert judge_begin(NONCED, PRODUCER.transactional_id, Begin(nonce=BEGUN, last=last)) is Verdict.REPEATS


@pytest.mark.parametrize(
    ("state", "begin"),
    [
        (NONCED, Begin(nonce=MINE, last=(7, 1))),
        (NONCED, Begin(nonce=MINE, last=(8, 2))),
        (NONCED, Begin(nonce=OTHERS)),  # its epoch was begun, and another since
        (None, Begin(nonce=MINE, last=(7, 2))),
    ],
)
def test_begin_is_fenced_when_another_instance_has_begun_since(state: TransactionState | None, begin: Begin) -> None:
    refused(ErrorCode.PRODUCER_FENCED, lambda: judge_begin(state, PRODUCER.transactional_id, begin))


def test_begin_follows_when_its_last_epoch_is_the_newest() -> None:
    for begin in (Begin(nonce=MINE), Begin(nonce=MINE, last=(7, 2))):
        assert judge_begin(NONCED, PRODUCER.transactional_id, begin) is Verdict.FOLLOWS
    assert judge_begin(None, PRODUCER.transactional_id, Begin(nonce=MINE)) is Verdict.FOLLOWS


def test_item_remembers_the_last_begins_only() -> None:
    state = None
    nonces = [Nonce(bytes([number]) * 16) for number in range(limits.TRANSACTION_BEGINS_KEPT + 3)]
    for nonce in nonces:
        state = next_producer_epoch(state, 9, Begin(nonce=nonce), NOW_MS)
    assert state is not None
    assert state.begins == tuple(reversed(nonces))[: limits.TRANSACTION_BEGINS_KEPT]


def test_id_belongs_to_the_principal_that_began_it_first() -> None:
    state = next_producer_epoch(None, 9, BEGIN, NOW_MS)
    for stranger in ("", "another role"):
        begin = Begin(nonce=OTHERS, principal=stranger)
        refused(ErrorCode.ACCESS_DENIED, partial(judge_begin, state, PRODUCER.transactional_id, begin))
        producer = replace(PRODUCER, epoch=0, principal=stranger)
        refused(ErrorCode.ACCESS_DENIED, partial(judge_transaction, state, producer, NOW_MS, OTHERS))
    assert judge_transaction(state, replace(PRODUCER, epoch=0, principal="role"), NOW_MS, OTHERS) is Verdict.FOLLOWS


def test_id_of_nobody_is_bound_by_the_next_begin() -> None:
    assert judge_begin(STATE, PRODUCER.transactional_id, BEGIN) is Verdict.FOLLOWS
    assert next_producer_epoch(STATE, 9, BEGIN, NOW_MS).principal == "role"


def test_transaction_holds_as_many_parts_as_one_write() -> None:
    check_transaction_size(set(KEYS[:-2]), [OFFSET])
    error = refused(ErrorCode.TRANSACTION_TOO_LARGE, lambda: check_transaction_size(set(KEYS[:-1]), [OFFSET]))
    assert error.facts == {"limit": limits.TRANSACTION_PARTS_MAX}
