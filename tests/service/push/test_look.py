"""The look: which lanes get a message though no append woke them, and what it removes.

A service in one process delivers what is due, without a stream that tells it.
"""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce, Offset, ShareGroupId, SubscriptionId, SubscriptionName
from penstock_core.limits import MIRROR_LATE_MS, PUSH_ORPHANS_MS, PUSH_STUCK_MS, PUSH_VISIBILITY_MS, TAIL_ROLL_REFS
from penstock_core.push.batch import Answered, Failed, Failure
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble
from penstock_core.push.lane import LaneKey, LaneState, PushMessage, lane_of
from penstock_core.push.subscription import OrphanedStates, Subscription
from penstock_core.share.acquire import AcquireRequest, LogBounds, plan_acquire
from penstock_core.share.share_state import ShareKey
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import delete_subscription, pause_subscription
from penstock_service.push.look import LookRun, deliver_due, look, start_due
from penstock_service.push.parallel.parallel_group import lane_delivery_key, parallel_group, parallel_group_name
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.service.push.admin.setting import FUNCTION, NAME, create, queue_of, take_messages
from tests.support.push_deliveries import Deliveries, refusing
from tests.support.service import Intercepted, SteppedClock, filled_topic, key_of, new_topic, send, with_stores

SLOW_MS = 2 * PUSH_VISIBILITY_MS
FOR_EVER_MS = 1e9
DOWN = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")


def looked(instance: Instance) -> list[int]:
    """The lanes that got a message of a look without failures."""
    done = look(instance, budget_ms=FOR_EVER_MS)
    messages = take_messages(instance)
    assert (done.messages, done.failures, done.is_finished) == (len(messages), 0, True)
    return [message.lane for message in messages]


def made(instance: Instance, *topics: str, **settings: Any) -> Subscription:
    """A subscription whose first messages are lost."""
    subscription = create(instance, *topics, start="earliest", **settings)
    take_messages(instance)
    return subscription


def key_in(instance: Instance, subscription: Subscription, partition: int = 0) -> DeliveryKey:
    key = key_of(instance, "orders", partition)
    return DeliveryKey(subscription_id=subscription.subscription_id, topic_id=key.topic_id, partition=key.partition)


def store(instance: Instance, key: DeliveryKey, state: DeliveryState) -> None:
    assert instance.stores.push.put_delivery(key, state) == state


def put_lane(instance: Instance, subscription: Subscription, state: LaneState, lane: int = 0) -> None:
    key = LaneKey(subscription_id=subscription.subscription_id, lane=lane)
    assert instance.stores.push.put_lane(key, state) == state


def at_the_end(instance: Instance, subscription: Subscription, partition: int = 0, *, armed: bool = True) -> None:
    """The target has answered for all records of the partition."""
    key = key_in(instance, subscription, partition)
    end = instance.stores.log.heads([key.partition_key])[key.partition_key].next_offset
    store(instance, key, DeliveryState(offset=end))
    if armed:
        assert instance.stores.log.arm_push(key.partition_key, end)[0]


def test_records_that_nobody_delivers_get_a_message_that_names_their_partition(instance: Instance) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance)
    done = look(instance, budget_ms=FOR_EVER_MS)
    key = key_of(instance, "orders")
    assert take_messages(instance) == [
        PushMessage(
            name=subscription.name,
            subscription_id=subscription.subscription_id,
            lane=lane_of(key, subscription.config.concurrency),
            version=0,
            partition=key,
        )
    ]
    assert done == LookRun(subscriptions=1, messages=1)


def test_partition_at_its_end_needs_none_while_it_is_armed(instance: Instance) -> None:
    filled_topic(instance, records=2)
    at_the_end(instance, made(instance))
    assert looked(instance) == []


def test_partition_needs_none_in_parallel_mode_when_its_records_were_removed(instance: Instance) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode="parallel")
    key = key_in(instance, subscription)
    share_key = ShareKey(ShareGroupId(subscription.subscription_id), key.topic_id, key.partition)
    instance.stores.share.create_state(share_key, Offset(0))
    assert len(looked(instance)) == 1
    truncate(instance, "orders", {0: 2}).all_ok()
    assert instance.stores.log.arm_push(key.partition_key, Offset(2))[0]
    assert looked(instance) == []


def test_partition_at_its_end_needs_one_when_it_is_not_armed(instance: Instance) -> None:
    """As after an upgrade, or where a delivery died before it armed the head."""
    filled_topic(instance, records=2)
    at_the_end(instance, made(instance), armed=False)
    assert len(looked(instance)) == 1


def test_lane_with_a_message_needs_none_until_that_is_overdue(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, concurrency=1)
    held = LaneState(version=1, holder="m-1", nonce="n", locked_until_ms=clock.now_ms() + 65_000)
    put_lane(instance, subscription, held)
    assert looked(instance) == []
    clock.sleep_ms(65_000 + SLOW_MS)
    assert looked(instance) == [0]


def test_lane_that_pauses_needs_none(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, concurrency=1)
    due_ms = clock.now_ms() + 3_600_000
    put_lane(instance, subscription, LaneState(version=1, sleeper="m-1", due_ms=due_ms))
    assert looked(instance) == [0], "its partition may be tried now"
    store(instance, key_in(instance, subscription), DeliveryState(offset=Offset(0), next_try_ms=due_ms))
    assert looked(instance) == []
    clock.sleep_ms(3_600_000 + SLOW_MS)
    assert looked(instance) == [0], "the message that slept is lost"


def test_partitions_of_one_lane_share_a_message(instance: Instance) -> None:
    new_topic(instance, partitions=5)
    subscription = made(instance, concurrency=2)
    for partition in range(5):
        at_the_end(instance, subscription, partition, armed=False)
    assert sorted(looked(instance)) == [0, 1]


def test_paused_subscription_needs_none(instance: Instance) -> None:
    filled_topic(instance, records=2)
    made(instance)
    pause_subscription(instance, NAME)
    assert looked(instance) == []


def test_topic_that_is_gone_needs_none(instance: Instance) -> None:
    filled_topic(instance, records=2)
    made(instance)
    delete_topic(instance, "orders")
    assert looked(instance) == []


def acquired(instance: Instance, subscription: Subscription, records: int, lock_ms: int) -> None:
    """A delivery has handed out the first records, and died."""
    key = key_of(instance, "orders")
    share = ShareKey(ShareGroupId(subscription.subscription_id), key.topic_id, key.partition)
    state = instance.stores.share.create_state(share, Offset(0))
    plan = plan_acquire(
        state,
        parallel_group(subscription).config,
        LogBounds(log_start=Offset(0), next_offset=Offset(records)),
        AcquireRequest(
            nonce=LockNonce("nonce-01"), records_max=records, lock_ms=lock_ms, now_ms=instance.clock.now_ms()
        ),
    )
    assert plan.update is not None
    assert instance.stores.share.update(share, plan.update).is_applied


def test_parallel_subscription_needs_one_for_fresh_records(instance: Instance) -> None:
    filled_topic(instance, records=2)
    made(instance, mode="parallel", concurrency=7)
    assert looked(instance) == [lane_of(key_of(instance, "orders"), 7)]


def test_parallel_subscription_needs_one_in_the_first_lane_for_records_that_come_back(
    instance: Instance, clock: SteppedClock
) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode="parallel", concurrency=7)
    key = key_of(instance, "orders")
    end = instance.stores.log.heads([key])[key].next_offset
    acquired(instance, subscription, end, 3_600_000)
    assert instance.stores.log.arm_push(key, end)[0]
    assert looked(instance) == [0]
    put_lane(instance, subscription, LaneState(version=1, sleeper="m-1", due_ms=clock.now_ms() + 3_600_000))
    assert looked(instance) == []


def test_parallel_lane_that_pauses_needs_none(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode="parallel", concurrency=1)
    due_ms = clock.now_ms() + 3_600_000
    put_lane(instance, subscription, LaneState(version=1, sleeper="m-1", due_ms=due_ms))
    assert looked(instance) == [0]
    key = lane_delivery_key(subscription.subscription_id, 0)
    store(instance, key, DeliveryState(offset=Offset(0), next_try_ms=due_ms))
    assert looked(instance) == []


def test_partition_that_fails_for_longer_than_the_patience_is_counted(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, patience_ms=1_000)
    trouble = Trouble(first_failed_ms=clock.now_ms(), range_end=Offset(1))
    store(instance, key_in(instance, subscription), DeliveryState(offset=Offset(0), trouble=trouble))
    clock.sleep_ms(1_000)
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == 0
    clock.sleep_ms(1)
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == 1


def test_long_patience_does_not_hide_what_fails(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, patience_ms=14 * 24 * 3_600_000)
    trouble = Trouble(first_failed_ms=clock.now_ms(), range_end=Offset(1))
    store(instance, key_in(instance, subscription), DeliveryState(offset=Offset(0), trouble=trouble))
    clock.sleep_ms(PUSH_STUCK_MS + 1)
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == 1


@pytest.mark.parametrize("is_mirror", [True, False])
def test_mirror_that_lacks_an_old_record_is_late(instance: Instance, clock: SteppedClock, is_mirror: bool) -> None:
    filled_topic(instance, records=2)
    target = {"stage": {"url": "https://b.example"}} if is_mirror else {"lambda": FUNCTION}
    subscription = create(instance, "orders", target=target, start="earliest")
    clock.sleep_ms(MIRROR_LATE_MS)
    assert look(instance, budget_ms=FOR_EVER_MS).mirrors_late == 0
    clock.sleep_ms(1)
    assert look(instance, budget_ms=FOR_EVER_MS).mirrors_late == is_mirror
    store(instance, key_in(instance, subscription), DeliveryState(offset=Offset(2)))
    assert look(instance, budget_ms=FOR_EVER_MS).mirrors_late == 0


def test_mirror_whose_index_cannot_be_read_gets_its_messages(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, "orders")
    for number in range(3 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    create(instance, "orders", target={"stage": {"url": "https://b.example"}}, start="earliest")
    take_messages(instance)
    clock.sleep_ms(SLOW_MS + MIRROR_LATE_MS)

    def fail(*_: object) -> None:
        raise DOWN

    broken = with_stores(instance, log=Intercepted(instance.stores.log, pages=fail))
    done = look(broken, budget_ms=FOR_EVER_MS)
    assert (done.messages, done.failures, done.mirrors_late) == (1, 0, 0)
    assert look(instance, budget_ms=FOR_EVER_MS).mirrors_late == 1, "it is late"


@pytest.mark.parametrize(("lane", "is_well", "stuck"), [(0, False, 1), (0, True, 0), (2, False, 0)])
def test_lane_that_is_well_or_gone_is_not_stuck(
    instance: Instance, clock: SteppedClock, lane: int, is_well: bool, stuck: int
) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode="parallel", concurrency=2)
    trouble = Trouble(first_failed_ms=clock.now_ms(), range_end=Offset(0), is_well=is_well)
    key = lane_delivery_key(subscription.subscription_id, lane)
    store(instance, key, DeliveryState(offset=Offset(0), trouble=trouble))
    clock.sleep_ms(PUSH_STUCK_MS + 1)
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == stuck


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_topic_that_is_gone_is_not_stuck(instance: Instance, clock: SteppedClock, mode: str) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode=mode)
    trouble = Trouble(first_failed_ms=clock.now_ms(), range_end=Offset(1))
    lane = lane_delivery_key(subscription.subscription_id, 0)
    key = lane if mode == "parallel" else key_in(instance, subscription)
    store(instance, key, DeliveryState(offset=Offset(0), trouble=trouble))
    clock.sleep_ms(PUSH_STUCK_MS + 1)
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == 1
    delete_topic(instance, "orders")
    assert look(instance, budget_ms=FOR_EVER_MS).partitions_stuck == 0


def test_states_of_a_deleted_subscription_go_after_an_hour(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance, mode="parallel")
    delete_subscription(instance, NAME)
    key = key_in(instance, subscription)
    store(instance, key, DeliveryState(offset=Offset(1)))  # of a delivery that went on for a while
    clock.sleep_ms(PUSH_ORPHANS_MS)
    assert look(instance, budget_ms=FOR_EVER_MS) == LookRun()
    clock.sleep_ms(1)
    assert look(instance, budget_ms=FOR_EVER_MS) == LookRun(states_removed=1)
    assert instance.stores.push.find_deliveries([key]) == {}
    assert instance.stores.push.orphaned_states("", 9) == []
    assert look(instance, budget_ms=FOR_EVER_MS) == LookRun()


def test_creation_that_died_leaves_nothing(instance: Instance, clock: SteppedClock) -> None:
    """It has noted its states, stored them and its share group, and never its subscription."""
    filled_topic(instance, records=2)

    def die(*_: object) -> None:
        raise DOWN

    broken = with_stores(instance, push=Intercepted(instance.stores.push, change_subscription=die))
    with pytest.raises(PenstockError, match="down"):
        create(broken, mode="parallel", start="latest")
    [orphans] = instance.stores.push.orphaned_states("", 9)
    assert instance.stores.share.get_group(parallel_group_name(orphans.subscription_id)) is not None
    clock.sleep_ms(PUSH_ORPHANS_MS + 1)
    assert look(instance, budget_ms=FOR_EVER_MS) == LookRun(states_removed=1)
    assert instance.stores.share.get_group(parallel_group_name(orphans.subscription_id)) is None


def test_note_that_came_late_removes_no_states_of_a_subscription(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance)
    at_the_end(instance, subscription)
    late = OrphanedStates(subscription_id=subscription.subscription_id, name=subscription.name, since_ms=0)
    instance.stores.push.note_orphans(late)
    clock.sleep_ms(PUSH_ORPHANS_MS + 1)
    assert looked(instance) == []
    assert instance.stores.push.orphaned_states("", 9) == []
    assert len(instance.stores.push.states_of(subscription.subscription_id).deliveries) == 1


def another(subscription: Subscription, number: int) -> Subscription:
    return replace(
        subscription, name=SubscriptionName(f"other-{number:03}"), subscription_id=SubscriptionId(f"{number:020}")
    )


def test_look_without_time_goes_on_behind_its_last_page(instance: Instance) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance)
    for number in range(149):
        instance.stores.push.change_subscription(None, another(subscription, number))
    seen = []
    for is_finished, subscriptions in ((False, 100), (False, 50), (True, 0), (False, 100)):
        done = look(instance, budget_ms=0)
        assert (done.is_finished, done.subscriptions, done.messages) == (is_finished, subscriptions, subscriptions)
        seen += [message.name for message in take_messages(instance)]
    assert len(set(seen)) == 150


def test_subscription_that_cannot_be_read_fails_alone(instance: Instance) -> None:
    filled_topic(instance, records=2)
    subscription = made(instance)
    other = another(subscription, 7)
    instance.stores.push.change_subscription(None, other)

    def states_of(original: object, subscription_id: str) -> object:
        if subscription_id == other.subscription_id:
            raise DOWN
        assert callable(original)
        return original(subscription_id)

    broken = with_stores(instance, push=Intercepted(instance.stores.push, states_of=states_of))
    done = look(broken, budget_ms=FOR_EVER_MS)
    assert (done.messages, done.failures) == (1, 1)
    assert [message.name for message in take_messages(instance)] == [subscription.name]


def test_queue_that_refuses_is_a_failure_of_the_run(instance: Instance) -> None:
    filled_topic(instance, records=2)
    made(instance)

    def send(*_: object) -> None:
        raise DOWN

    broken = with_stores(instance, deliveries=Intercepted(instance.stores.deliveries, send=send))
    done = look(broken, budget_ms=FOR_EVER_MS)
    assert (done.messages, done.failures) == (0, 1)


def test_partition_without_a_head_is_passed_over(instance: Instance) -> None:
    filled_topic(instance, records=2)
    made(instance)
    instance.stores.log.delete_head(key_of(instance, "orders"))
    assert looked(instance) == []


def targets_of(instance: Instance) -> MemoryTargets:
    targets = instance.stores.targets
    assert isinstance(targets, MemoryTargets)
    return targets


def delivered(instance: Instance) -> list[int]:
    """The offsets of all records of all deliveries so far."""
    return [each.record.offset for _, batch in targets_of(instance).deliveries for each in batch.records]


def test_records_are_found_by_heads_that_nobody_waits_at(instance: Instance) -> None:
    filled_topic(instance, records=2)
    create(instance, start="earliest")
    assert deliver_due(instance, queue_of(instance)) > 0
    assert deliver_due(instance, queue_of(instance)) == 0, "the head is armed"
    send(instance, "orders", "later")
    assert deliver_due(instance, queue_of(instance)) > 0
    assert delivered(instance) == [0, 1, 2]


def test_lost_message_is_sent_again(instance: Instance) -> None:
    filled_topic(instance, records=2)
    create(instance, start="earliest")
    queue = queue_of(instance)
    for each in queue.receive(10):
        queue.delete(each.receipt)
    deliver_due(instance, queue)
    assert delivered(instance) == [0, 1]


def test_lane_that_rests_gets_no_message_before_its_time(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=1)
    create(instance, start="earliest", backoff_ms_min=60_000)
    targets_of(instance).answer = lambda _target, _batch: Failed(failure=Failure.REFUSAL, error="no")
    deliver_due(instance, queue_of(instance))
    assert deliver_due(instance, queue_of(instance)) == 0
    clock.sleep_ms(61_000)
    deliver_due(instance, queue_of(instance))
    assert delivered(instance) == [0, 0]


def test_paused_subscription_gets_no_message(instance: Instance) -> None:
    filled_topic(instance, records=1)
    create(instance, start="earliest")
    pause_subscription(instance, NAME)
    deliver_due(instance, queue_of(instance))
    assert deliver_due(instance, queue_of(instance)) == 0
    assert delivered(instance) == []


def test_service_in_one_process_starts_a_lane_that_sleeps_for_another_partition() -> None:
    deliveries = Deliveries(partitions=2)
    deliveries.append("a")
    deliveries.answer = refusing([0], otherwise=Failed(failure=Failure.AWAY, error="away"))
    deliveries.run_once()
    lane = deliveries.lane()
    assert lane is not None
    assert lane.due_ms > deliveries.clock.now_ms()
    deliveries.append("b", partition=1)
    received = deliveries.queue.receive()
    for each in received:  # such a service has no stream
        deliveries.queue.delete(each.receipt)
    start_due(deliveries.instance)
    [message] = deliveries.queue.receive()
    assert message.message.partition == deliveries.key(1).partition_key
    deliveries.answer = lambda _: Answered()
    deliveries.deliver(message)
    assert deliveries.state(1) is not None
