import contextlib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import SubscriptionId
from penstock_core.limits import PUSH_LOCK_MS, PUSH_SLICE_MS, PUSH_VISIBILITY_MS
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.lane import NO_MESSAGE
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.deliver import Ending
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.topics.alter_topic import delete_topic
from tests.support.push_deliveries import NAME, Deliveries
from tests.support.service import UNAVAILABLE, Counted, FrozenClock, Intercepted, another_instance, with_stores

BROKEN = Failed(failure=Failure.BROKEN, error="500")


def is_at_rest(deliveries: Deliveries, partitions: int = 1) -> bool:
    """Nothing runs and nothing is queued, and the next append to any partition wakes."""
    lane = deliveries.lane()
    is_free = lane is not None and (lane.holder, lane.sleeper, lane.locked_until_ms) == (NO_MESSAGE, NO_MESSAGE, 0)
    return is_free and not deliveries.queue.messages and all(map(deliveries.is_armed, range(partitions)))


def test_records_of_all_partitions_are_delivered_once_and_in_order() -> None:
    deliveries = Deliveries(partitions=3)
    for partition in range(3):
        deliveries.append_many(250, partition)
    deliveries.run()
    assert sorted(deliveries.batches) == sorted(3 * [[*range(100)], [*range(100, 200)], [*range(200, 250)]])
    assert is_at_rest(deliveries, partitions=3)
    assert deliveries.counts()["records_pushed"] == 750


def test_append_to_a_partition_at_its_end_wakes_a_delivery() -> None:
    deliveries = Deliveries()
    deliveries.run()
    assert is_at_rest(deliveries)
    deliveries.append("a")
    deliveries.append("b")
    assert len(deliveries.queue.messages) == 1
    deliveries.run()
    assert deliveries.batches == [[0, 1]]
    assert is_at_rest(deliveries)


def test_batches_of_a_slice_cost_one_write_each_and_one_read_of_many() -> None:
    deliveries = Deliveries(settings={"batch_records": 10})
    deliveries.append_many(200)
    counts: Counter[str] = Counter()
    stores = deliveries.instance.stores
    counted = {name: Counted(getattr(stores, name), name, counts) for name in ("push", "log", "deliveries", "targets")}
    counted["zones"] = [Counted(zone, "zone", counts) for zone in stores.zones]  # type: ignore[assignment] # a list
    assert deliveries.run_once(with_stores(deliveries.instance, **counted)) is Ending.DELETE
    assert counts == {
        "push.get_subscription": 2,  # once more, because the partition has no state yet
        "push.find_lane": 1,
        "push.put_lane": 2,
        "push.find_deliveries": 1,
        "push.put_delivery": 20,
        "log.heads": 2,
        "log.arm_push": 1,
        "zone.get": 1,
        "targets.deliver": 20,
    }


@pytest.mark.parametrize("failure", Failure)
def test_failure_hides_the_message_until_the_next_try(failure: Failure) -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    deliveries.answer = lambda _: Failed(failure=failure, error="no")
    assert deliveries.run_once() is Ending.KEEP
    lane = deliveries.lane()
    assert lane is not None
    assert (lane.holder, lane.sleeper, lane.due_ms) == (NO_MESSAGE, "message-1", deliveries.clock.now_ms() + 1_000)
    assert deliveries.run_once() is None
    deliveries.answer = lambda _: Answered()
    deliveries.run()
    assert deliveries.batches == [[0], [0]]
    assert is_at_rest(deliveries)


def test_other_partition_is_delivered_while_one_rests() -> None:
    deliveries = Deliveries(partitions=2)
    deliveries.run()
    deliveries.append("a", partition=0)
    deliveries.answer = lambda _: BROKEN
    deliveries.run_once()
    deliveries.answer = lambda _: Answered()
    deliveries.append("b", partition=1)
    assert deliveries.run_once() is Ending.DELETE, "another message sleeps for the partition that rests"
    assert deliveries.batches == [[0], [0]]
    assert deliveries.state(1) is not None
    deliveries.run()
    assert deliveries.batches == [[0], [0], [0]]
    assert is_at_rest(deliveries, partitions=2)


def test_message_of_a_delivery_that_died_takes_its_lane_again() -> None:
    deliveries = Deliveries()
    deliveries.append("a", "b")
    deliveries.die()
    deliveries.clock.time_ms += PUSH_VISIBILITY_MS
    assert deliveries.run_once() is Ending.DELETE
    assert deliveries.batches == [[0, 1], [0, 1]]
    assert is_at_rest(deliveries)


def test_record_that_kills_each_delivery_is_counted_as_a_failure() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    for attempts in (0, 1, 2, 3):
        deliveries.die()
        state = deliveries.state()
        assert (0 if state is None or state.trouble is None else state.trouble.attempts) == attempts
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS


def test_own_message_that_comes_again_while_its_delivery_works_stays_in_the_queue() -> None:
    """SQS delivers a message twice, or its receipt is over before the function dies."""
    deliveries = Deliveries()
    deliveries.append("a")
    [first] = deliveries.queue.receive()
    again: list[Ending] = []

    def answer(_batch: PushBatch) -> Answer:
        if not again:
            again.append(deliveries.deliver(replace(first, receipt=first.receipt)))
        return Answered()

    deliveries.answer = answer
    assert deliveries.deliver(first) is Ending.DELETE
    assert again == [Ending.KEEP]
    assert deliveries.batches == [[0]]


def test_other_message_that_meets_a_held_lane_goes() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    again: list[Ending | None] = []

    def answer(_batch: PushBatch) -> Answer:
        deliveries.queue.send([deliveries.message()])
        again.append(deliveries.run_once())
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert again == [Ending.DELETE]
    assert deliveries.batches == [[0]]
    assert is_at_rest(deliveries)


def test_message_of_a_newer_version_waits_for_the_delivery_that_has_not_seen_it() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    again: list[Ending | None] = []

    def answer(_batch: PushBatch) -> Answer:
        deliveries.change()
        deliveries.queue.send([deliveries.message()])
        again.append(deliveries.run_once())
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert again == [Ending.KEEP]
    assert deliveries.batches == [[0]]
    assert is_at_rest(deliveries)


@pytest.mark.parametrize("has_waiter", [False, True])
def test_append_between_release_and_arming_is_delivered(has_waiter: bool) -> None:
    """With a waiter: another subscription has armed the head. The append's message met the held lane and is gone."""
    deliveries = Deliveries()
    deliveries.run()
    deliveries.append("a")
    instance, released = deliveries.instance, list[Any]()
    key = deliveries.key().partition_key
    if has_waiter:
        assert instance.stores.log.arm_push(key, instance.stores.log.heads([key])[key].next_offset)[0]

    def put_lane(put: Any, lane_key: Any, new: Any) -> Any:
        stored = put(lane_key, new)
        if not new.holder and not released:
            released.append(new)
            deliveries.append("b")
            for message in deliveries.queue.receive():  # as if it had come before the release
                deliveries.queue.delete(message.receipt)
        return stored

    push = Intercepted(instance.stores.push, put_lane=put_lane)
    assert deliveries.run_once(with_stores(instance, push=push)) is Ending.DELETE
    assert deliveries.batches == [[0], [1]]
    assert is_at_rest(deliveries)


def test_slice_ends_with_a_new_message_and_the_next_partition_has_its_turn() -> None:
    deliveries = Deliveries(partitions=2)
    for partition in range(2):
        deliveries.append_many(300, partition)
    seen: list[int] = []

    def answer(batch: PushBatch) -> Answer:
        seen.append(batch.records[0].key.partition)
        deliveries.clock.time_ms += PUSH_SLICE_MS
        return Answered()

    deliveries.answer = answer
    assert deliveries.run_once() is Ending.DELETE
    assert len(deliveries.queue.messages) == 1
    deliveries.run()
    assert seen[:4] in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert len(seen) == 6
    assert is_at_rest(deliveries, partitions=2)


def test_paused_subscription_delivers_nothing_until_it_is_resumed() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    deliveries.change(is_paused=True)
    deliveries.run()
    assert (deliveries.batches, deliveries.queue.messages) == ([], [])
    deliveries.change(is_paused=False)
    deliveries.start()
    deliveries.run()
    assert deliveries.batches == [[0]]


def test_pause_forgets_the_message_that_slept() -> None:
    """Or later failures would trust in it, and delete their own."""
    deliveries = Deliveries()
    deliveries.append("a")
    deliveries.answer = lambda _: BROKEN
    deliveries.run_once()
    deliveries.change(is_paused=True)
    deliveries.run()
    lane = deliveries.lane()
    assert lane is not None
    assert lane.sleeper == NO_MESSAGE


def test_message_of_another_subscription_under_the_name_goes() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    [received] = deliveries.queue.receive()
    message = replace(received.message, subscription_id=SubscriptionId("0d" * 10))
    assert deliveries.deliver(replace(received, message=message)) is Ending.DELETE
    deliveries.instance.stores.push.delete_subscription(deliveries.subscription, deliveries.clock.now_ms())
    deliveries.queue.send([deliveries.message()])
    assert deliveries.run_once() is Ending.DELETE
    assert deliveries.batches == []


def test_deleted_topic_ends_its_deliveries() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    delete_topic(deliveries.instance, "orders")
    deliveries.run()
    assert (deliveries.batches, deliveries.queue.messages) == ([], [])


def test_message_names_a_partition_that_the_instance_does_not_know() -> None:
    deliveries = Deliveries(partitions=2)
    other = another_instance(deliveries.instance)
    topic = other.topic_cache.get("orders")
    deliveries.append("a", partition=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.topic_cache, "_remembered", {})
        other.topic_cache.get("orders")
        remembered = other.topic_cache._remembered[topic.name]
        other.topic_cache._remembered[topic.name] = (remembered[0], replace(topic, partitions=1))
        message = replace(deliveries.message(), partition=deliveries.key(1).partition_key)
        deliveries.run()
        deliveries.append("b", partition=1)
        deliveries.queue.send([message])
        deliveries.queue.receive(limit=1)
        deliveries.run_once(other)
    assert deliveries.batches[-1] == [1]


def test_storage_that_fails_frees_the_lane_and_brings_the_message_back() -> None:
    deliveries = Deliveries()
    deliveries.append("a")

    def refuse(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    log = Intercepted(deliveries.instance.stores.log, heads=refuse)
    assert deliveries.run_once(with_stores(deliveries.instance, log=log)) is Ending.KEEP
    lane = deliveries.lane()
    assert lane is not None
    assert (lane.locked_until_ms, lane.deaths) == (0, 0)
    deliveries.run(for_ms=10_000)
    assert deliveries.batches == [[0]]
    assert is_at_rest(deliveries)


def test_delivery_that_was_frozen_before_its_invocation_sends_nothing_old() -> None:
    """By its monotonic clock no time has passed. Another delivery has committed meanwhile."""
    deliveries = Deliveries(settings={"batch_records": 1})
    deliveries.append("a", "b")
    frozen = FrozenClock(deliveries.clock)
    instance = another_instance(deliveries.instance, clock=frozen)

    def heads(read: Any, keys: Any) -> Any:
        found = read(keys)
        if not deliveries.batches:
            frozen.freeze(PUSH_LOCK_MS + PUSH_VISIBILITY_MS)
            deliveries.run()
        return found

    log = Intercepted(instance.stores.log, heads=heads)
    [received] = deliveries.queue.receive()
    assert deliveries.deliver(received, with_stores(instance, log=log)) is Ending.KEEP
    assert deliveries.batches == [[0], [1]]


def test_delivery_that_was_frozen_before_it_took_its_lane_takes_it_no_more() -> None:
    """Another delivery has got and deleted its message: the lane would sleep on a message that is gone."""
    deliveries = Deliveries()
    deliveries.append("a")
    [first] = deliveries.queue.receive()
    instance = another_instance(deliveries.instance)

    def find_lane(read: Any, key: Any) -> Any:
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS
        deliveries.run()
        assert is_at_rest(deliveries)
        return read(key)

    frozen = with_stores(instance, push=Intercepted(instance.stores.push, find_lane=find_lane))
    with pytest.raises(PenstockError, match="in flight"):
        deliveries.deliver(first, frozen)
    assert is_at_rest(deliveries)
    deliveries.append("b")
    deliveries.run()
    assert deliveries.batches == [[0], [1]]


def test_delivery_that_was_slow_hands_records_that_came_meanwhile_to_another_one() -> None:
    deliveries = Deliveries()
    deliveries.run()
    deliveries.append("a")

    def answer(_batch: PushBatch) -> Answer:
        deliveries.clock.time_ms += PUSH_SLICE_MS
        return Answered()

    def arm_push(arm: Any, key: Any, next_offset: Any) -> Any:
        if next_offset == 1:
            deliveries.append("b")
        return arm(key, next_offset)

    deliveries.answer = answer
    log = Intercepted(deliveries.instance.stores.log, arm_push=arm_push)
    assert deliveries.run_once(with_stores(deliveries.instance, log=log)) is Ending.DELETE
    assert deliveries.batches == [[0]]
    assert len(deliveries.queue.messages) == 1
    deliveries.run()
    assert deliveries.batches == [[0], [1]]
    assert is_at_rest(deliveries)


def test_delivery_that_was_slow_keeps_its_message_while_the_lane_sleeps_on_it() -> None:
    """One partition rests, and records have come to the other one. The successor gets them, and this message stays."""
    deliveries = Deliveries(partitions=2)
    deliveries.run()
    deliveries.append("a", partition=0)
    deliveries.append("a", partition=1)

    def answer(batch: PushBatch) -> Answer:
        deliveries.clock.time_ms += PUSH_SLICE_MS // 2
        return BROKEN if batch.records[0].key.partition == 0 and len(deliveries.batches) < 4 else Answered()

    def arm_push(arm: Any, key: Any, next_offset: Any) -> Any:
        if next_offset == 1:
            deliveries.append("b", partition=1)
        return arm(key, next_offset)

    deliveries.answer = answer
    log = Intercepted(deliveries.instance.stores.log, arm_push=arm_push)
    while len(deliveries.batches) < 2:
        deliveries.run_once(with_stores(deliveries.instance, log=log))
    lane = deliveries.lane()
    assert lane is not None
    assert lane.sleeper in deliveries.queue._messages
    deliveries.run()
    assert is_at_rest(deliveries, partitions=2)


def test_delivery_that_was_frozen_while_it_noted_an_attempt_takes_it_back() -> None:
    """The look at the clock is behind the write, so the target gets nothing late, and no attempt counts untried."""
    deliveries = Deliveries(settings={"batch_records": 1})
    deliveries.append("a", "b")
    deliveries.answer = lambda _: BROKEN
    deliveries.run_once()
    deliveries.answer = lambda _: Answered()

    def put_delivery(put: Any, key: Any, new: Any) -> Any:
        stored = put(key, new)
        if new.version == 2:
            assert stored.trouble.attempts == 2
            deliveries.clock.time_ms += PUSH_SLICE_MS
        return stored

    deliveries.clock.time_ms += 1_000
    push = Intercepted(deliveries.instance.stores.push, put_delivery=put_delivery)
    deliveries.run_once(with_stores(deliveries.instance, push=push))
    assert deliveries.batches == [[0]]
    state = deliveries.state()
    assert state is not None
    assert state.trouble is not None
    assert state.trouble.attempts == 1
    deliveries.run()
    assert deliveries.batches == [[0], [0], [1]]


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_answer_that_comes_after_the_deletion_and_the_lock_leaves_no_state(mode: str) -> None:
    deliveries = Deliveries(settings={"mode": mode})
    if mode == "parallel":
        put_parallel_group(deliveries.instance, deliveries.subscription, [])
    deliveries.append("a")

    def answer(_batch: PushBatch) -> Answer:
        delete_subscription(deliveries.instance, NAME)
        deliveries.clock.time_ms += PUSH_LOCK_MS
        return Answered()

    deliveries.answer = answer
    with contextlib.suppress(PenstockError):
        deliveries.run_once()
    assert deliveries.batches == [[0]]
    assert not deliveries.instance.stores.push.states_of(deliveries.subscription.subscription_id).deliveries


def test_answer_that_comes_after_the_lock_changes_nothing() -> None:
    deliveries = Deliveries(settings={"batch_records": 1})
    deliveries.append("a", "b")
    seen: list[int] = []

    def answer(batch: PushBatch) -> Answer:
        seen.append(batch.records[0].record.offset)
        if len(seen) == 1:
            deliveries.clock.time_ms += PUSH_LOCK_MS + PUSH_VISIBILITY_MS
            deliveries.run()
        return Answered()

    deliveries.answer = answer
    assert deliveries.run_once() is Ending.KEEP
    assert seen == [0, 0, 1]
    state = deliveries.state()
    assert state is not None
    assert state.offset == 2


def test_lost_answers_of_the_lane_and_of_the_queue_lose_no_message() -> None:
    deliveries = Deliveries()
    deliveries.append("a")

    def refuse(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    queue: Any = Intercepted(deliveries.queue, send=refuse)
    deliveries.answer = lambda _: _slow(deliveries)
    deliveries.append_many(150)
    with pytest.raises(PenstockError):
        deliveries.run_once(with_stores(deliveries.instance, deliveries=queue))
    deliveries.answer = lambda _: Answered()
    deliveries.run()
    assert deliveries.batches == [[*range(100)], [*range(100, 151)]]
    assert is_at_rest(deliveries)


def test_name_is_that_of_the_batch() -> None:
    deliveries = Deliveries()
    deliveries.append("a")
    names: list[str] = []

    def answer(batch: PushBatch) -> Answer:
        names.append(f"{batch.subscription} {batch.attempt} {batch.records[0].topic}")
        return BROKEN if len(names) < 3 else Answered()

    deliveries.answer = answer
    deliveries.run()
    assert names == [f"{NAME} 1 orders", f"{NAME} 2 orders", f"{NAME} 3 orders"]


def _slow(deliveries: Deliveries) -> Answer:
    deliveries.clock.time_ms += PUSH_SLICE_MS
    return Answered()
