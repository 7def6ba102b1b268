"""An id that rests for 90 days is forgotten. Its old transactions stay done once, and no zombie of it commits.

Delayed records of a transaction wait from its commit on, and those of an aborted one never come.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NONCE_BYTES, Nonce, TransactionalId
from penstock_core.limits import (
    TIMER_PAST_MS_MAX,
    TRANSACTION_PARTS_MAX,
    TRANSACTIONAL_ID_KEPT_MS,
    TRANSACTIONAL_ID_RENEWED_MS,
)
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState, id_expiry_s
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.timers.promote_due import promote_due
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import commit_transaction, stage
from tests.service.timers.delays import delay, delayed, sent
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    START_MS,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    entry,
    key_of,
    new_topic,
    read_all,
    with_stores,
)
from tests.support.tables import tables_of
from tests.support.timers import waiting as still_waiting

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


FAR = 10**15


@pytest.fixture
def topic(instance: Instance) -> str:
    begin_transactions(instance, NAME)
    return new_topic(instance, partitions=2)


def part(*entries: ProduceEntry, number: int = 0, epoch: int = 0) -> TransactionPart:
    return TransactionPart(
        producer=TransactionalProducer(transactional_id=NAME, epoch=epoch),
        number=START_MS + number,
        entries=entries,
        acks=Acks.QUORUM,
        nonce=Nonce(number.to_bytes(NONCE_BYTES, "big")),
    )


def waiting(instance: Instance, topic: str) -> list[int]:
    return [each.place.due_ms for each in still_waiting(instance.stores.timers, key_of(instance, topic), 0, FAR, 100)]


def values(instance: Instance, topic: str, partition: int = 0) -> list[str]:
    return [value for _, value in read_all(instance, topic, partition)]


def test_delayed_records_of_all_stages_wait_from_the_commit_on(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 1_000
    stage(instance, part(delayed(topic, due_ms, "b", number=1), entry(topic, 0, batch("now"))), 0)
    stage(instance, part(delayed(topic, due_ms, "c", number=2)), 1)
    assert waiting(instance, topic) == []
    last = part(delayed(topic, due_ms, "d", number=3), delayed(topic, due_ms - 1, "a", number=4))
    [placed] = commit_transaction(instance, last, [], 2)
    assert (placed.base_offset, placed.next_offset) == (0, 1)
    assert waiting(instance, topic) == [due_ms - 1, due_ms, due_ms, due_ms]
    assert len(sent(instance)) == 1
    clock.time_ms = due_ms
    promote_due(instance, budget_ms=1_000)
    assert values(instance, topic) == ["now", "a", "b", "c", "d"]


def test_transaction_of_delayed_records_alone_commits(instance: Instance, clock: SteppedClock, topic: str) -> None:
    last = part(delayed(topic, clock.now_ms(), "a"))
    assert commit_transaction(instance, last, [], 0) == []
    assert commit_transaction(another_instance(instance), last, [], 0) == [], "a repeat"
    assert len(sent(instance)) == 2, "the first try may have died before its message"
    promote_due(instance, budget_ms=1_000)
    assert values(instance, topic) == ["a"]


def test_delayed_records_of_an_aborted_transaction_never_come(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    stage(instance, part(delayed(topic, clock.now_ms(), "aborted")), 0)
    begin_transactions(instance, NAME)
    refused_commit = part(delayed(topic, clock.now_ms(), "fenced", number=1))
    refused(ErrorCode.PRODUCER_FENCED, lambda: commit_transaction(instance, refused_commit, [], 1))
    clock.time_ms += 10**9
    promote_due(instance, budget_ms=1_000)
    assert values(instance, topic) == []


def test_lost_answer_of_a_commit_schedules_once(instance: Instance, clock: SteppedClock, topic: str) -> None:
    last = part(delayed(topic, clock.now_ms(), "a"), entry(topic, 1, batch("now")))

    def lost(commit: object, transaction: object) -> bool:
        commit(transaction)  # type: ignore[operator]
        raise LOST_ANSWER

    unlucky = with_stores(instance, transactions=Intercepted(instance.stores.transactions, commit=lost))
    assert len(commit_transaction(unlucky, last, [], 0)) == 1
    assert len(commit_transaction(instance, last, [], 0)) == 1
    promote_due(instance, budget_ms=1_000)
    assert (values(instance, topic), values(instance, topic, 1)) == (["a"], ["now"])


def test_id_that_another_timer_has_refuses_the_whole_commit(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 1_000
    delay(instance, topic, due_ms, "first")
    last = part(delayed(topic, due_ms, "second"), entry(topic, 1, batch("now")))
    refused(ErrorCode.TIMER_EXISTS, lambda: commit_transaction(instance, last, [], 0))
    assert values(instance, topic, 1) == []


def test_timers_count_as_parts_of_the_transaction(instance: Instance, clock: SteppedClock, topic: str) -> None:
    due_ms = clock.now_ms()
    many = [delayed(topic, due_ms, "a", number=number) for number in range(TRANSACTION_PARTS_MAX)]
    too_many = part(*many, entry(topic, 0, batch("now")))
    refused(ErrorCode.TRANSACTION_TOO_LARGE, lambda: commit_transaction(instance, too_many, [], 0))
    commit_transaction(instance, part(*many), [], 0)
    assert len(waiting(instance, topic)) == TRANSACTION_PARTS_MAX


def test_due_time_that_is_long_past_at_the_commit_is_refused(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() - TIMER_PAST_MS_MAX + 60_000
    stage(instance, part(delayed(topic, due_ms, "a")), 0)
    clock.time_ms += 120_000
    refused(ErrorCode.INVALID_REQUEST, lambda: commit_transaction(instance, part(), [], 1))
    assert list(instance.stores.timers.due_minutes(FAR)) == []


@pytest.mark.parametrize("is_staged", [True, False])
def test_delayed_part_opens_a_generation_that_an_operator_left(
    instance: Instance, clock: SteppedClock, is_staged: bool
) -> None:
    begin_transactions(instance, NAME)
    topic = new_topic(instance, partitions=2, ordering_on_change="wait")
    with catch_kill():
        alter_topic(killed_at(instance, 2, is_applied=True), topic, 3, {})
    late = part(delayed(topic, clock.now_ms() + 5_000, "later"))
    error = refused(
        ErrorCode.PARTITION_CLOSED,
        lambda: stage(instance, late, 0) if is_staged else commit_transaction(instance, late, [], 0),
    )
    assert error.facts == {"writable_partitions": 3, "first_writable_partition": 2}
    assert instance.topic_cache.read_through(topic).generations == (0, 2)


def test_commit_that_was_applied_is_answered_when_its_generation_cannot_be_opened(instance: Instance) -> None:
    begin_transactions(instance, NAME)
    topic = new_topic(instance, partitions=1, ordering_on_change="wait")
    stale = another_instance(instance)
    first = commit_transaction(stale, part(entry(topic, 0, batch("a"))), [], 0)
    with catch_kill():
        alter_topic(killed_at(instance, 4, is_applied=True), topic, 2, {})

    def fail(*_: object) -> None:
        raise UNAVAILABLE

    broken = another_instance(instance, topics=Intercepted(instance.stores.topics, open_generation=fail))
    assert commit_transaction(broken, part(entry(topic, 0, batch("a"))), [], 0) == first
    refused(
        ErrorCode.PARTITION_CLOSED,
        lambda: commit_transaction(broken, part(entry(topic, 0, batch("b")), number=1), [], 0),
    )
