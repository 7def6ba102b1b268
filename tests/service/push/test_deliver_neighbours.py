"""Partitions of one lane: one that fails, one that is added, and slices that get nothing done."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicName
from penstock_core.limits import PUSH_RECEIPT_RETRY_MS, PUSH_SLICE_MS
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending
from penstock_service.topics.alter_topic import alter_topic
from tests.support.push_deliveries import Deliveries
from tests.support.service import UNAVAILABLE, Counted, Intercepted, another_instance, new_topic, with_stores

REFUSED = Failed(failure=Failure.REFUSAL, error="it does not fit")


def failing_for(deliveries: Deliveries, partition: int) -> Instance:
    """An instance that cannot write the state of one partition."""
    key = deliveries.key(partition)

    def put(original: Any, wanted: Any, new: Any) -> Any:
        if wanted == key:
            raise UNAVAILABLE
        return original(wanted, new)

    return with_stores(deliveries.instance, push=Intercepted(deliveries.instance.stores.push, put_delivery=put))


def offsets(deliveries: Deliveries) -> dict[int, int]:
    states = [(partition, deliveries.state(partition)) for partition in range(deliveries.partitions)]
    return {partition: state.offset for partition, state in states if state is not None}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_neighbours_go_on_when_storage_fails_one_partition(failing: int) -> None:
    deliveries = Deliveries(partitions=3)
    for partition in range(3):
        deliveries.append_many(150, partition)
    assert deliveries.run_once(failing_for(deliveries, failing)) is Ending.KEEP
    assert offsets(deliveries) == {each: 150 for each in range(3) if each != failing}
    lane = deliveries.lane()
    assert lane is not None
    assert (lane.sleeper, lane.deaths) == ("message-1", 0)
    assert lane.due_ms == deliveries.clock.now_ms() + PUSH_RECEIPT_RETRY_MS
    assert all(deliveries.is_armed(each) for each in range(3) if each != failing)
    [(name, facts)] = deliveries.instance.telemetry.take()[1]
    assert (name, facts["partition"]) == ("push_delivery_failed", str(deliveries.key(failing).partition_key))
    deliveries.run()
    assert offsets(deliveries) == dict.fromkeys(range(3), 150)


def test_partition_that_fails_is_not_tried_again_in_the_same_delivery() -> None:
    deliveries = Deliveries(partitions=2, settings={"batch_records": 1})
    deliveries.append("a", partition=0)
    deliveries.append_many(5, partition=1)
    deliveries.run_once(failing_for(deliveries, 0))
    assert Counter(map(tuple, deliveries.batches)) == {(0,): 2, (1,): 1, (2,): 1, (3,): 1, (4,): 1}


def test_partition_that_was_added_while_its_lane_was_held_is_delivered_at_once() -> None:
    """Its message meets the held lane and is gone, and the delivery remembers the topic as it was."""
    deliveries = Deliveries()
    deliveries.append("a")
    other = another_instance(deliveries.instance)
    endings: list[Ending | None] = []

    def answer(_batch: PushBatch) -> Answer:
        if not endings:
            alter_topic(other, "orders", 2, {})
            deliveries.append("b", partition=1)
            endings.append(deliveries.run_once(other))
        return Answered()

    deliveries.answer = answer
    deliveries.run(for_ms=1)
    assert endings == [Ending.DELETE]
    assert deliveries.batches == [[0], [0]]
    assert not deliveries.queue.messages
    assert deliveries.is_armed(1)


def test_successor_of_a_slice_names_a_partition_that_was_added_meanwhile() -> None:
    deliveries = Deliveries(settings={"batch_records": 1})
    deliveries.append("a", "b")
    other = another_instance(deliveries.instance)

    def answer(_batch: PushBatch) -> Answer:
        alter_topic(other, "orders", 2, {})
        deliveries.clock.time_ms += PUSH_SLICE_MS
        return Answered()

    deliveries.answer = answer
    assert deliveries.run_once() is Ending.DELETE
    [message] = deliveries.queue.messages
    assert message.partition == deliveries.key(1).partition_key


def test_topics_are_read_once_after_the_release_and_a_deleted_one_is_passed_over() -> None:
    deliveries = Deliveries()
    deliveries.run()
    topics = deliveries.subscription.topics
    deliveries.change(topics={**topics, TopicName("gone"): next(iter(topics.values()))})
    deliveries.append("a")
    counts: Counter[str] = Counter()
    stores = deliveries.instance.stores
    instance = another_instance(with_stores(deliveries.instance, topics=Counted(stores.topics, "topics", counts)))
    instance.topic_cache.get("orders")
    counts.clear()
    assert deliveries.run_once(instance) is Ending.DELETE
    assert deliveries.batches == [[0]]
    assert counts["topics.get"] <= 1 + 3


def test_failed_read_of_topics_brings_the_message_back() -> None:
    deliveries = Deliveries()
    reads: list[str] = []

    def refuse_second(original: Any, name: Any) -> Any:
        reads.append(name)
        if len(reads) == 2:
            raise UNAVAILABLE
        return original(name)

    topics = Intercepted(deliveries.instance.stores.topics, get=refuse_second)
    [received] = deliveries.queue.receive()
    with pytest.raises(PenstockError) as refused:
        deliveries.deliver(received, another_instance(with_stores(deliveries.instance, topics=topics)))
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert len(deliveries.queue.messages) == 1


def test_slices_that_get_nothing_done_are_bounded() -> None:
    """Storage is so slow that each slice is over before its first invocation."""
    deliveries = Deliveries()
    deliveries.append("a")
    stores = deliveries.instance.stores

    def slow(original: Any, *arguments: Any) -> Any:
        deliveries.clock.time_ms += PUSH_SLICE_MS
        return original(*arguments)

    quick = deliveries.instance
    deliveries.instance = with_stores(quick, push=Intercepted(stores.push, find_deliveries=slow))
    begin_ms, runs = deliveries.clock.now_ms(), 0
    while deliveries.clock.now_ms() < begin_ms + 300_000:
        visible_ms = deliveries.queue.next_visible_ms
        assert visible_ms is not None
        deliveries.clock.time_ms = max(deliveries.clock.time_ms, visible_ms)
        assert deliveries.run_once() is Ending.KEEP
        runs += 1
    assert runs <= 300_000 // (PUSH_SLICE_MS + PUSH_RECEIPT_RETRY_MS) + 1
    assert deliveries.batches == []
    deliveries.instance = quick
    deliveries.run()
    assert deliveries.batches == [[0]]


@pytest.mark.parametrize("attempts_max", [1, 2])
def test_attempt_that_time_did_not_allow_is_not_counted(attempts_max: int) -> None:
    """The write that counts it takes long. A record is not buried untried."""
    settings = {"dead_letter_topic": "dead", "attempts_max": attempts_max, "patience_ms": 0}
    deliveries = Deliveries(settings=settings)
    new_topic(deliveries.instance, "dead")
    deliveries.append("a")
    deliveries.answer = lambda _: REFUSED
    quick, stores, slow = deliveries.instance, deliveries.instance.stores, list[int]()

    def put(original: Any, key: Any, new: Any) -> Any:
        if new.trouble is not None and new.trouble.attempts == 2 and not slow:
            slow.append(1)
            deliveries.clock.time_ms += PUSH_SLICE_MS
        return original(key, new)

    deliveries.instance = with_stores(quick, push=Intercepted(stores.push, put_delivery=put))
    deliveries.run()
    assert slow
    assert deliveries.batches == [[0], [0]]
    assert deliveries.counts()["push_dead_lettered"] == 1
