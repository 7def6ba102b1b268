"""Transactions: all visible at once or not at all, once, and by the newest instance only."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.limits import (
    PRODUCER_EPOCH_MAX,
    TAIL_ROLL_REFS,
    TRANSACTION_MS_MAX,
    TRANSACTION_PARTS_MAX,
    TRANSACTION_STAGES_MAX,
)
from penstock_core.transaction import TransactionalProducer, TransactionState
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.transactions import commit_transaction as use_cases
from penstock_service.transactions.begin_transactions import CommittedRange, TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import (
    OffsetEntry,
    commit_transaction,
)
from tests.support.restoring import jump
from tests.support.service import (
    LOST_ANSWER,
    START_MS,
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    filled_topic,
    new_topic,
    read_all,
    send,
)

NAME = TransactionalId("ledger")


def begin(instance: Instance) -> TransactionalProducer:
    return TransactionalProducer(transactional_id=NAME, epoch=begin_transactions(instance, NAME).epoch)


def commit(
    instance: Instance,
    producer: TransactionalProducer,
    number: int,
    *entries: ProduceEntry,
    offsets: tuple[OffsetEntry, ...] = (),
    stages: int = 0,
) -> list[CommittedRange]:
    return commit_transaction(instance, part_of(producer, number, *entries), offsets, stages)


def stage(
    instance: Instance, producer: TransactionalProducer, number: int, stage_number: int, *entries: ProduceEntry
) -> None:
    use_cases.stage(instance, part_of(producer, number, *entries), stage_number)


def part_of(producer: TransactionalProducer, number: int, *entries: ProduceEntry) -> TransactionPart:
    """The request of a transaction; `number` counts from 0, as the first begin is at `START_MS`."""
    return TransactionPart(producer=producer, number=START_MS + number, entries=entries, acks=Acks.QUORUM)


def refusal(instance: Instance, *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(PenstockError) as caught:
        commit(instance, *arguments, **named)
    return caught.value.code


def places(found: list[CommittedRange]) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.base_offset, each.next_offset) for each in found]


def test_transaction_is_visible_at_once_over_topics_and_partitions(instance: Instance) -> None:
    new_topic(instance, "orders", 2)
    new_topic(instance, "bills")
    send(instance, "orders", "before", partition=1)
    producer = begin(instance)
    entries = [entry("orders", 0, batch("a")), entry("orders", 1, batch("b", "c")), entry("bills", 0, batch("d"))]
    offset = OffsetEntry(group="readers", topic="orders", partition=0, offset=1)
    found = commit(instance, producer, 0, *entries, offsets=(offset,))
    assert places(found) == [("orders", 0, 0, 1), ("orders", 1, 1, 3), ("bills", 0, 0, 1)]
    assert read_all(instance, "orders", 1) == [(0, "before"), (1, "b"), (2, "c")]
    assert read_all(instance, "bills") == [(0, "d")]
    assert [each.offset for each in committed_offsets(instance, "readers", None)] == [1]


def test_repeated_commit_stores_nothing_twice_and_answers_as_the_first(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    first = commit(instance, producer, 0, entry(topic, 0, batch("a", "b")))
    for number in range(3 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    assert commit(instance, producer, 0, entry(topic, 0, batch("a", "b"))) == first
    assert len(read_all(instance, topic)) == 2 + 3 * TAIL_ROLL_REFS
    commit(instance, producer, 1, entry(topic, 0, batch("c")))
    assert refusal(instance, producer, 0, entry(topic, 0, batch("a", "b"))) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert refusal(instance, producer, 3, entry(topic, 0, batch("d"))) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_newer_instance_fences_the_older(instance: Instance) -> None:
    topic = new_topic(instance)
    old = begin(instance)
    commit(instance, old, 0, entry(topic, 0, batch("old")))
    stage(instance, old, 1, 0, entry(topic, 0, batch("staged")))
    new = begin(instance)
    assert new.epoch == old.epoch + 1
    assert refusal(instance, old, 1, stages=1) is ErrorCode.PRODUCER_FENCED
    with pytest.raises(PenstockError, match="another instance"):
        stage(instance, old, 1, 1, entry(topic, 0, batch("late")))
    assert begin_transactions(instance, "other").number == START_MS - 1
    commit(instance, new, 1, entry(topic, 0, batch("new")))
    assert read_all(instance, topic) == [(0, "old"), (1, "new")]


def test_repeat_by_the_driver_is_recognised_although_another_has_begun(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)

    def repeated(original: Any, *arguments: Any) -> bool:
        assert original(*arguments)
        begin(instance)
        is_applied: bool = original(*arguments)
        return is_applied

    slow = another_instance(instance, transactions=Intercepted(instance.stores.transactions, commit=repeated))
    assert places(commit(slow, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]


def test_producer_gets_another_id_when_its_epochs_run_out(instance: Instance) -> None:
    last = TransactionState(producer_id=7, epoch=PRODUCER_EPOCH_MAX, expires_at_s=9)
    instance.stores.transactions.begin_epoch(NAME, None, last)
    state = begin_transactions(instance, NAME)
    assert state.epoch == 0
    assert state.producer_id != 7


def test_instances_that_begin_at_once_get_different_epochs(instance: Instance) -> None:
    def overtaken(original: Any, *arguments: Any) -> TransactionState:
        if not found:
            found.append(begin_transactions(instance, NAME).epoch)
        state: TransactionState = original(*arguments)
        return state

    found: list[int] = []
    slow = another_instance(instance, transactions=Intercepted(instance.stores.transactions, begin_epoch=overtaken))
    assert [begin_transactions(slow, NAME).epoch, *found] == [1, 0]


def test_staged_data_becomes_visible_with_the_commit(instance: Instance) -> None:
    new_topic(instance, "orders", 2)
    producer = begin(instance)
    for number in range(3):
        stage(instance, producer, 0, number, entry("orders", 0, batch(f"s{number}")))
    assert read_all(instance, "orders") == []
    rest = [entry("orders", 1, batch("x")), entry("orders", 0, batch("last"))]
    found = commit(instance, producer, 0, *rest, stages=3)
    assert places(found) == [("orders", 0, 0, 4), ("orders", 1, 0, 1)]
    assert [value for _, value in read_all(instance, "orders")] == ["s0", "s1", "s2", "last"]
    assert commit(instance, producer, 0, *rest, stages=3) == found


def test_stage_that_was_repeated_stands_once(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    for _ in range(3):
        stage(instance, producer, 0, 0, entry(topic, 0, batch("once")))
    commit(instance, producer, 0, stages=1)
    assert read_all(instance, topic) == [(0, "once")]


def test_transaction_that_lacks_a_stage_is_refused(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    stage(instance, producer, 0, 0, entry(topic, 0, batch("a")))
    assert refusal(instance, producer, 0, stages=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert read_all(instance, topic) == []


def test_transaction_that_took_too_long_is_refused(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    stage(instance, producer, 0, 0, entry(topic, 0, batch("a")))
    clock.time_ms += TRANSACTION_MS_MAX + 1
    assert refusal(instance, producer, 0, stages=1) is ErrorCode.TRANSACTION_EXPIRED
    assert read_all(instance, topic) == []


def test_transaction_that_is_too_large_is_refused_before_anything_is_put(instance: Instance) -> None:
    new_topic(instance, "orders", TRANSACTION_PARTS_MAX)
    producer = begin(instance)
    entries = [entry("orders", number, batch("x")) for number in range(TRANSACTION_PARTS_MAX)]
    offset = OffsetEntry(group="readers", topic="orders", partition=0, offset=1)
    assert refusal(instance, producer, 0, *entries, offsets=(offset,)) is ErrorCode.TRANSACTION_TOO_LARGE
    assert not instance.stores.zones[0].segments  # type: ignore[attr-defined]
    assert len(commit(instance, producer, 0, *entries)) == TRANSACTION_PARTS_MAX
    with pytest.raises(PenstockError) as caught:
        stage(instance, producer, 1, TRANSACTION_STAGES_MAX, *entries)
    assert caught.value.code is ErrorCode.TRANSACTION_TOO_LARGE


def test_one_wrong_part_leaves_nothing(instance: Instance) -> None:
    new_topic(instance, "orders", 2)
    producer = begin(instance)
    good = entry("orders", 0, batch("a"))
    assert refusal(instance, producer, 0, good, entry("orders", 1, b"torn")) is ErrorCode.CORRUPT_BATCH
    assert refusal(instance, producer, 0, good, entry("orders", 7, batch("b"))) is ErrorCode.UNKNOWN_PARTITION
    assert refusal(instance, producer, 0, good, entry("bills", 0, batch("b"))) is ErrorCode.UNKNOWN_TOPIC
    half = OffsetEntry(group="readers", topic="orders", partition=0, offset=1, member_id="m")
    assert refusal(instance, producer, 0, good, offsets=(half,)) is ErrorCode.INVALID_REQUEST
    assert read_all(instance, "orders") == []
    commit(instance, producer, 0, good)


def test_topic_that_was_deleted_after_staging_refuses_the_whole(instance: Instance) -> None:
    new_topic(instance, "orders")
    new_topic(instance, "bills")
    producer = begin(instance)
    stage(instance, producer, 0, 0, entry("orders", 0, batch("a")), entry("bills", 0, batch("b")))
    delete_topic(instance, "bills")
    new_topic(instance, "bills")
    assert refusal(instance, producer, 0, stages=1) is ErrorCode.UNKNOWN_PARTITION
    assert read_all(instance, "orders") == read_all(instance, "bills") == []


def test_offsets_of_a_partition_that_a_member_owns_need_its_lease(instance: Instance) -> None:
    topic = filled_topic(instance, records=5)
    before = read_all(instance, topic)
    commit_offsets(instance, "readers", [CommitEntry(topic=topic, partition=0, offset=5)])
    producer = begin(instance)
    fenced = OffsetEntry(group="readers", topic=topic, partition=0, offset=9, member_id="m", lease_epoch=3)
    assert refusal(instance, producer, 0, entry(topic, 0, batch("a")), offsets=(fenced,)) is ErrorCode.LEASE_FENCED
    assert read_all(instance, topic) == before
    assert [each.offset for each in committed_offsets(instance, "readers", None)] == [5]


def test_offset_within_the_jump_of_a_restore_is_refused(instance: Instance) -> None:
    producer = begin(instance)
    new_topic(instance)
    jump(instance, 20)
    lost = OffsetEntry(group="readers", topic="orders", partition=0, offset=15)
    assert refusal(instance, producer, 0, offsets=(lost,)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offset_of_a_topic_that_was_made_anew_is_refused(instance: Instance) -> None:
    old = instance.topic_cache.read_through(new_topic(instance))
    delete_topic(instance, "orders")
    new = instance.topic_cache.read_through(new_topic(instance))
    producer = begin(instance)
    read = OffsetEntry(group="readers", topic="orders", partition=0, offset=9, topic_id=old.topic_id)
    assert refusal(instance, producer, 0, offsets=(read,)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert committed_offsets(instance, "readers", None) == []
    commit(instance, producer, 0, offsets=(replace(read, topic_id=new.topic_id),))
    assert [each.offset for each in committed_offsets(instance, "readers", None)] == [9]


@pytest.mark.parametrize("is_applied", [False, True])
def test_commit_whose_answer_was_lost_is_repeated_and_stands_once(instance: Instance, is_applied: bool) -> None:
    topic = new_topic(instance)
    producer = begin(instance)

    def lost(original: Any, *arguments: Any) -> bool:
        if is_applied:
            original(*arguments)
        raise LOST_ANSWER

    unlucky = another_instance(instance, transactions=Intercepted(instance.stores.transactions, commit=lost))
    if is_applied:  # the producer's item says so at once
        assert places(commit(unlucky, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]
    else:
        with pytest.raises(PenstockError) as caught:
            commit(unlucky, producer, 0, entry(topic, 0, batch("a")))
        assert caught.value.maybe_applied
    assert places(commit(instance, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]
    assert read_all(instance, topic) == [(0, "a")]


def test_refused_commit_says_maybe_applied_when_the_producers_item_cannot_be_read(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    commit(instance, producer, 0, entry(topic, 0, batch("a")))

    def refused(_original: Any, *_arguments: Any) -> None:
        raise UNAVAILABLE

    blind = another_instance(instance, transactions=Intercepted(instance.stores.transactions, get=refused))
    delete_topic(instance, topic)
    with pytest.raises(PenstockError) as caught:
        commit(blind, producer, 0, entry(topic, 0, batch("a")))
    assert caught.value.maybe_applied


def test_commit_that_cannot_say_where_its_records_are_says_maybe_applied(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)

    def refused(_original: Any, *_arguments: Any) -> None:
        raise UNAVAILABLE

    blind = another_instance(instance, log=Intercepted(instance.stores.log, heads=refused))
    with pytest.raises(PenstockError) as caught:
        commit(blind, producer, 0, entry(topic, 0, batch("a")))
    assert caught.value.maybe_applied
    assert places(commit(instance, producer, 0, entry(topic, 0, batch("a")))) == [(topic, 0, 0, 1)]


@pytest.mark.parametrize("step", ["put_stage", "commit"])
def test_crash_before_the_commit_leaves_nothing_visible(instance: Instance, step: str) -> None:
    topic = new_topic(instance)
    producer = begin(instance)

    def die(_original: Any, *_arguments: Any) -> None:
        raise Killed

    dying = another_instance(instance, transactions=Intercepted(instance.stores.transactions, **{step: die}))

    def transact() -> None:
        stage(dying, producer, 0, 0, entry(topic, 0, batch("a")))
        commit(dying, producer, 0, stages=1)

    with pytest.raises(Killed):
        transact()
    assert read_all(instance, topic) == []
    newer = begin(instance)
    commit(instance, newer, 0, entry(topic, 0, batch("b")))
    assert read_all(instance, topic) == [(0, "b")]


def test_heads_are_rolled_by_transactions_too(instance: Instance) -> None:
    topic = new_topic(instance)
    producer = begin(instance)
    for number in range(10):
        for part in range(5):
            stage(instance, producer, number, part, entry(topic, 0, batch(f"{number}.{part}")))
        commit(instance, producer, number, stages=5)
    [_, key] = instance.topic_cache.get_partition(topic, 0)
    assert len(instance.stores.log.heads([key])[key].tail) < TAIL_ROLL_REFS
    expected = [f"{number}.{part}" for number in range(10) for part in range(5)]
    assert read_all(instance, topic) == list(enumerate(expected))


def test_transaction_costs_one_write_however_many_partitions(instance: Instance) -> None:
    new_topic(instance, "orders", 10)
    producer = begin(instance)
    counts: Counter[str] = Counter()
    warm = counted_instance(instance, counts)
    commit(warm, producer, 0, entry("orders", 0, batch("warm")))
    counts.clear()
    commit(warm, producer, 1, *[entry("orders", number, batch("x")) for number in range(10)])
    assert counts == {"zone.put": 3, "transactions.commit": 1, "log.heads": 1}
