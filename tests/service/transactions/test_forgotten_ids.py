"""An id that rests for 90 days is forgotten. Its old transactions stay done once, and no zombie of it commits."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Nonce, TransactionalId
from penstock_core.limits import TRANSACTIONAL_ID_KEPT_MS, TRANSACTIONAL_ID_RENEWED_MS
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState, id_expiry_s
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction, stage
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, another_instance, batch, entry, new_topic, read_all
from tests.support.tables import tables_of

NAME = TransactionalId("ledger")
A, B, C = (Nonce(name * 16) for name in (b"a", b"b", b"c"))


def part_of(state: TransactionState, nonce: Nonce, *entries: ProduceEntry) -> TransactionPart:
    """The transaction after that state."""
    producer = TransactionalProducer(transactional_id=NAME, epoch=state.epoch)
    return TransactionPart(producer=producer, number=state.number + 1, entries=entries, acks=Acks.QUORUM, nonce=nonce)


def stored(instance: Instance) -> TransactionState:
    state = instance.stores.transactions.get(NAME)
    assert state is not None
    return state


def unsure(code: ErrorCode, call: Callable[[], object]) -> PenstockError:
    """The error that `call` raises. It says that the transaction may have been committed."""
    with pytest.raises(PenstockError) as caught:
        call()
    assert (caught.value.code, caught.value.maybe_applied) == (code, True)
    return caught.value


def forget(instance: Instance, clock: SteppedClock) -> None:
    """90 days go by, and then TTL."""
    clock.time_ms += TRANSACTIONAL_ID_KEPT_MS + 2_000
    tables_of(instance).expire(sys.maxsize)
    assert instance.stores.transactions.get(NAME) is None


def test_id_ends_90_days_after_its_last_begin_or_commit(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME)
    assert first.expires_at_s == id_expiry_s(clock.now_ms())
    clock.time_ms += 5_000
    commit_transaction(instance, part_of(first, A, entry(topic, 0, batch("a"))), [], 0)
    assert stored(instance).expires_at_s == id_expiry_s(clock.now_ms())
    clock.time_ms += 5_000
    assert begin_transactions(instance, NAME).expires_at_s == id_expiry_s(clock.now_ms())


def test_id_past_its_end_goes_on_until_it_is_removed(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME)
    clock.time_ms += 2 * TRANSACTIONAL_ID_KEPT_MS
    commit_transaction(instance, part_of(first, A, entry(topic, 0, batch("a"))), [], 0)
    clock.time_ms += 2 * TRANSACTIONAL_ID_KEPT_MS
    second = begin_transactions(instance, NAME, Begin(nonce=B, last=(first.producer_id, first.epoch)))
    assert (second.epoch, second.number) == (1, first.number + 1)


@pytest.mark.parametrize("left_ms", [TRANSACTIONAL_ID_RENEWED_MS - 1_000, 0, -5_000])
def test_staged_transaction_is_not_forgotten_before_its_commit(
    instance: Instance, clock: SteppedClock, left_ms: int
) -> None:
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME)
    clock.time_ms += TRANSACTIONAL_ID_KEPT_MS - left_ms
    stage(instance, part_of(first, A, entry(topic, 0, batch("a"))), 0)
    assert stored(instance).expires_at_s == id_expiry_s(clock.now_ms())
    clock.time_ms += 10_000
    tables_of(instance).expire(sys.maxsize)
    commit_transaction(instance, part_of(first, A), [], 1)
    assert read_all(instance, topic) == [(0, "a")]


def test_stage_writes_no_end_while_the_end_is_far(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME)
    clock.time_ms += TRANSACTIONAL_ID_KEPT_MS - TRANSACTIONAL_ID_RENEWED_MS - 1_000
    stage(instance, part_of(first, A, entry(topic, 0, batch("a"))), 0)
    assert stored(instance) == first


def test_stage_is_refused_when_its_id_is_removed_meanwhile(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME)
    clock.time_ms += TRANSACTIONAL_ID_KEPT_MS

    def removed(original: Any, *arguments: Any) -> bool:
        forget(instance, clock)
        is_renewed: bool = original(*arguments)
        return is_renewed

    slow = another_instance(instance, transactions=Intercepted(instance.stores.transactions, renew=removed))
    unsure(ErrorCode.PRODUCER_FENCED, lambda: stage(slow, part_of(first, A, entry(topic, 0, batch("a"))), 0))


def test_zombie_of_a_forgotten_id_is_refused_before_and_after_the_id_begins_anew(
    instance: Instance, clock: SteppedClock
) -> None:
    """The zombie's first commit was applied. Neither refusal says that it was not."""
    topic = new_topic(instance)
    first = begin_transactions(instance, NAME, Begin(nonce=A))
    zombie = part_of(first, B, entry(topic, 0, batch("zombie")))
    commit_transaction(instance, zombie, [], 0)
    forget(instance, clock)
    error = unsure(ErrorCode.PRODUCER_FENCED, lambda: commit_transaction(instance, zombie, [], 0))
    assert error.facts["last_transaction"] is None
    last = Begin(nonce=C, last=(first.producer_id, first.epoch))
    refused(ErrorCode.PRODUCER_FENCED, lambda: begin_transactions(instance, NAME, last))
    anew = begin_transactions(instance, NAME)
    assert (anew.epoch, anew.number) == (0, clock.now_ms() - 1)
    assert anew.producer_id != first.producer_id
    unsure(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: commit_transaction(instance, zombie, [], 0))
    unsure(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: stage(instance, zombie, 0))
    told = refused(ErrorCode.PRODUCER_FENCED, lambda: begin_transactions(instance, NAME, last))
    assert told.facts["last_transaction"] > zombie.number, "a lower number would say: not committed"
    commit_transaction(instance, part_of(anew, C, entry(topic, 0, batch("new"))), [], 0)
    assert read_all(instance, topic) == [(0, "zombie"), (1, "new")]


def test_instance_begins_anew_when_the_id_is_removed_between_its_read_and_its_write(
    instance: Instance, clock: SteppedClock
) -> None:
    first = begin_transactions(instance, NAME)
    clock.time_ms += TRANSACTIONAL_ID_KEPT_MS

    def removed(original: Any, *arguments: Any) -> TransactionState:
        if instance.stores.transactions.get(NAME) == first:
            forget(instance, clock)
        state: TransactionState = original(*arguments)
        return state

    slow = another_instance(instance, transactions=Intercepted(instance.stores.transactions, begin_epoch=removed))
    anew = begin_transactions(slow, NAME)
    assert (anew.epoch, anew.number) == (0, clock.now_ms() - 1)
