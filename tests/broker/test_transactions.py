"""Transactions: all visible at once or not at all, once, and by the newest instance only."""

from collections import Counter
from typing import Any

import pytest

from penstock_broker.begin_transactions import begin_transactions
from penstock_broker.broker import Broker
from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_broker.commit_transaction import Committed, GroupOffset, commit_transaction, stage
from penstock_broker.committed_offsets import committed_offsets
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import ProduceEntry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.limits import (
    PRODUCER_EPOCH_MAX,
    TAIL_ROLL_REFS,
    TRANSACTION_MS_MAX,
    TRANSACTION_PARTS_MAX,
    TRANSACTION_STAGES_MAX,
)
from penstock_core.quorum import Acks
from penstock_core.transaction import TransactionalProducer, TransactionState
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_broker,
    entry,
    new_topic,
    read_all,
    send,
)

NAME = TransactionalId("ledger")


def begin(broker: Broker) -> TransactionalProducer:
    return TransactionalProducer(transactional_id=NAME, epoch=begin_transactions(broker, NAME).epoch)


def commit(
    broker: Broker,
    producer: TransactionalProducer,
    number: int,
    *entries: ProduceEntry,
    offsets: tuple[GroupOffset, ...] = (),
    stages: int = 0,
) -> list[Committed]:
    return commit_transaction(broker, producer, number, entries, offsets, stages, Acks.QUORUM)


def refusal(broker: Broker, *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(PenstockError) as caught:
        commit(broker, *arguments, **named)
    return caught.value.code


def places(found: list[Committed]) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.base_offset, each.next_offset) for each in found]


def test_transaction_is_visible_at_once_over_topics_and_partitions(broker: Broker) -> None:
    new_topic(broker, "orders", 2)
    new_topic(broker, "bills")
    send(broker, "orders", "before", partition=1)
    producer = begin(broker)
    entries = [entry("orders", 0, batch("a")), entry("orders", 1, batch("b", "c")), entry("bills", 0, batch("d"))]
    offset = GroupOffset(group="readers", topic="orders", partition=0, offset=1)
    found = commit(broker, producer, 0, *entries, offsets=(offset,))
    assert places(found) == [("orders", 0, 0, 1), ("orders", 1, 1, 3), ("bills", 0, 0, 1)]
    assert read_all(broker, "orders", 1) == [(0, "before"), (1, "b"), (2, "c")]
    assert read_all(broker, "bills") == [(0, "d")]
    assert [each.offset for each in committed_offsets(broker, "readers", None)] == [1]


def test_repeated_commit_stores_nothing_twice_and_answers_as_the_first(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)
    first = commit(broker, producer, 0, entry(topic, 0, batch("a", "b")))
    for number in range(3 * TAIL_ROLL_REFS):
        send(broker, topic, str(number))
    assert commit(broker, producer, 0, entry(topic, 0, batch("a", "b"))) == first
    assert len(read_all(broker, topic)) == 2 + 3 * TAIL_ROLL_REFS
    commit(broker, producer, 1, entry(topic, 0, batch("c")))
    assert refusal(broker, producer, 0, entry(topic, 0, batch("a", "b"))) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert refusal(broker, producer, 3, entry(topic, 0, batch("d"))) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_newer_instance_fences_the_older(broker: Broker) -> None:
    topic = new_topic(broker)
    old = begin(broker)
    commit(broker, old, 0, entry(topic, 0, batch("old")))
    stage(broker, old, 1, 0, [entry(topic, 0, batch("staged"))], Acks.QUORUM)
    new = begin(broker)
    assert new.epoch == old.epoch + 1
    assert refusal(broker, old, 1, stages=1) is ErrorCode.PRODUCER_FENCED
    with pytest.raises(PenstockError, match="another instance"):
        stage(broker, old, 1, 1, [entry(topic, 0, batch("late"))], Acks.QUORUM)
    assert begin_transactions(broker, "other").number == -1
    commit(broker, new, 1, entry(topic, 0, batch("new")))
    assert read_all(broker, topic) == [(0, "old"), (1, "new")]


def test_repeat_by_the_driver_is_recognised_although_another_has_begun(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)

    def repeated(original: Any, *arguments: Any) -> bool:
        assert original(*arguments)
        begin(broker)
        is_applied: bool = original(*arguments)
        return is_applied

    slow = another_instance(broker, transactions=Intercepted(broker.transactions, commit=repeated))
    assert places(commit(slow, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]


def test_producer_gets_another_id_when_its_epochs_run_out(broker: Broker) -> None:
    last = TransactionState(producer_id=7, epoch=PRODUCER_EPOCH_MAX)
    broker.transactions.begin_epoch(NAME, None, last)
    state = begin_transactions(broker, NAME)
    assert state.epoch == 0
    assert state.producer_id != 7


def test_instances_that_begin_at_once_get_different_epochs(broker: Broker) -> None:
    def overtaken(original: Any, *arguments: Any) -> TransactionState:
        if not found:
            found.append(begin_transactions(broker, NAME).epoch)
        state: TransactionState = original(*arguments)
        return state

    found: list[int] = []
    slow = another_instance(broker, transactions=Intercepted(broker.transactions, begin_epoch=overtaken))
    assert [begin_transactions(slow, NAME).epoch, *found] == [1, 0]


def test_staged_data_becomes_visible_with_the_commit(broker: Broker) -> None:
    new_topic(broker, "orders", 2)
    producer = begin(broker)
    for number in range(3):
        stage(broker, producer, 0, number, [entry("orders", 0, batch(f"s{number}"))], Acks.QUORUM)
    assert read_all(broker, "orders") == []
    rest = [entry("orders", 1, batch("x")), entry("orders", 0, batch("last"))]
    found = commit(broker, producer, 0, *rest, stages=3)
    assert places(found) == [("orders", 0, 0, 4), ("orders", 1, 0, 1)]
    assert [value for _, value in read_all(broker, "orders")] == ["s0", "s1", "s2", "last"]
    assert commit(broker, producer, 0, *rest, stages=3) == found


def test_stage_that_was_repeated_stands_once(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)
    for _ in range(3):
        stage(broker, producer, 0, 0, [entry(topic, 0, batch("once"))], Acks.QUORUM)
    commit(broker, producer, 0, stages=1)
    assert read_all(broker, topic) == [(0, "once")]


def test_transaction_that_lacks_a_stage_is_refused(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)
    stage(broker, producer, 0, 0, [entry(topic, 0, batch("a"))], Acks.QUORUM)
    assert refusal(broker, producer, 0, stages=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert read_all(broker, topic) == []


def test_transaction_that_took_too_long_is_refused(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    producer = begin(broker)
    stage(broker, producer, 0, 0, [entry(topic, 0, batch("a"))], Acks.QUORUM)
    clock.time_ms += TRANSACTION_MS_MAX + 1
    assert refusal(broker, producer, 0, stages=1) is ErrorCode.TRANSACTION_EXPIRED
    assert read_all(broker, topic) == []


def test_transaction_that_is_too_large_is_refused_before_anything_is_put(broker: Broker) -> None:
    new_topic(broker, "orders", TRANSACTION_PARTS_MAX)
    producer = begin(broker)
    entries = [entry("orders", number, batch("x")) for number in range(TRANSACTION_PARTS_MAX)]
    offset = GroupOffset(group="readers", topic="orders", partition=0, offset=1)
    assert refusal(broker, producer, 0, *entries, offsets=(offset,)) is ErrorCode.TRANSACTION_TOO_LARGE
    assert not broker.zones[0].segments  # type: ignore[attr-defined]
    assert len(commit(broker, producer, 0, *entries)) == TRANSACTION_PARTS_MAX
    with pytest.raises(PenstockError) as caught:
        stage(broker, producer, 1, TRANSACTION_STAGES_MAX, entries, Acks.QUORUM)
    assert caught.value.code is ErrorCode.TRANSACTION_TOO_LARGE


def test_one_wrong_part_leaves_nothing(broker: Broker) -> None:
    new_topic(broker, "orders", 2)
    producer = begin(broker)
    good = entry("orders", 0, batch("a"))
    assert refusal(broker, producer, 0, good, entry("orders", 1, b"torn")) is ErrorCode.CORRUPT_BATCH
    assert refusal(broker, producer, 0, good, entry("orders", 7, batch("b"))) is ErrorCode.UNKNOWN_PARTITION
    assert refusal(broker, producer, 0, good, entry("bills", 0, batch("b"))) is ErrorCode.UNKNOWN_TOPIC
    half = GroupOffset(group="readers", topic="orders", partition=0, offset=1, member_id="m")
    assert refusal(broker, producer, 0, good, offsets=(half,)) is ErrorCode.INVALID_REQUEST
    assert read_all(broker, "orders") == []
    commit(broker, producer, 0, good)


def test_topic_that_was_deleted_after_staging_refuses_the_whole(broker: Broker) -> None:
    new_topic(broker, "orders")
    new_topic(broker, "bills")
    producer = begin(broker)
    stage(broker, producer, 0, 0, [entry("orders", 0, batch("a")), entry("bills", 0, batch("b"))], Acks.QUORUM)
    delete_topic(broker, "bills")
    new_topic(broker, "bills")
    assert refusal(broker, producer, 0, stages=1) is ErrorCode.UNKNOWN_PARTITION
    assert read_all(broker, "orders") == read_all(broker, "bills") == []


def test_offsets_of_a_partition_that_a_member_owns_need_its_lease(broker: Broker) -> None:
    topic = new_topic(broker)
    commit_offsets(broker, "readers", [CommitEntry(topic=topic, partition=0, offset=5)])
    producer = begin(broker)
    fenced = GroupOffset(group="readers", topic=topic, partition=0, offset=9, member_id="m", lease_epoch=3)
    assert refusal(broker, producer, 0, entry(topic, 0, batch("a")), offsets=(fenced,)) is ErrorCode.LEASE_FENCED
    assert read_all(broker, topic) == []
    assert [each.offset for each in committed_offsets(broker, "readers", None)] == [5]


@pytest.mark.parametrize("is_applied", [False, True])
def test_commit_whose_answer_was_lost_is_repeated_and_stands_once(broker: Broker, is_applied: bool) -> None:
    topic = new_topic(broker)
    producer = begin(broker)

    def lost(original: Any, *arguments: Any) -> bool:
        if is_applied:
            original(*arguments)
        raise LOST_ANSWER

    unlucky = another_instance(broker, transactions=Intercepted(broker.transactions, commit=lost))
    with pytest.raises(PenstockError) as caught:
        commit(unlucky, producer, 0, entry(topic, 0, batch("a")))
    assert caught.value.maybe_applied
    assert places(commit(broker, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]
    assert read_all(broker, topic) == [(0, "a")]


def test_commit_that_cannot_say_where_its_records_are_says_maybe_applied(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)

    def refused(_original: Any, *_arguments: Any) -> None:
        raise UNAVAILABLE

    blind = another_instance(broker, log=Intercepted(broker.log, heads=refused))
    with pytest.raises(PenstockError) as caught:
        commit(blind, producer, 0, entry(topic, 0, batch("a")))
    assert caught.value.maybe_applied
    assert places(commit(broker, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]


@pytest.mark.parametrize("step", ["put_stage", "commit"])
def test_crash_before_the_commit_leaves_nothing_visible(broker: Broker, step: str) -> None:
    topic = new_topic(broker)
    producer = begin(broker)

    def die(_original: Any, *_arguments: Any) -> None:
        raise Killed

    dying = another_instance(broker, transactions=Intercepted(broker.transactions, **{step: die}))

    def transact() -> None:
        stage(dying, producer, 0, 0, [entry(topic, 0, batch("a"))], Acks.QUORUM)
        commit(dying, producer, 0, stages=1)

    with pytest.raises(Killed):
        transact()
    assert read_all(broker, topic) == []
    newer = begin(broker)
    commit(broker, newer, 0, entry(topic, 0, batch("b")))
    assert read_all(broker, topic) == [(0, "b")]


def test_heads_are_rolled_by_transactions_too(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = begin(broker)
    for number in range(10):
        for part in range(5):
            stage(broker, producer, number, part, [entry(topic, 0, batch(f"{number}.{part}"))], Acks.QUORUM)
        commit(broker, producer, number, stages=5)
    [_, key] = broker.directory.find_partition(topic, 0)
    assert len(broker.log.heads([key])[key].tail) < TAIL_ROLL_REFS
    expected = [f"{number}.{part}" for number in range(10) for part in range(5)]
    assert read_all(broker, topic) == list(enumerate(expected))


def test_transaction_costs_one_write_however_many_partitions(broker: Broker) -> None:
    new_topic(broker, "orders", 10)
    producer = begin(broker)
    counts: Counter[str] = Counter()
    warm = counted_broker(broker, counts)
    commit(warm, producer, 0, entry("orders", 0, batch("warm")))
    counts.clear()
    commit(warm, producer, 1, *[entry("orders", number, batch("x")) for number in range(10)])
    assert counts == {"zone.put": 3, "transactions.commit": 1, "log.heads": 1}
