"""Subscriptions are paused, resumed, listed, described and deleted."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble, changed, commit, pause
from penstock_core.push.lane import LaneKey, LaneState
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.describe_subscription import (
    LaneCounts,
    LastResult,
    SubscriptionPartition,
    describe_subscription,
    list_subscriptions,
)
from penstock_service.push.admin.pause_subscription import (
    delete_subscription,
    pause_subscription,
    remove_states,
    resume_subscription,
)
from penstock_service.push.admin.put_subscription import put_subscription
from penstock_service.push.parallel.parallel_group import lane_delivery_key, parallel_group_name
from penstock_service.topics.alter_topic import delete_topic
from tests.service.push.admin.setting import FUNCTION, NAME, create, take_messages, wish
from tests.support.refusals import refused
from tests.support.service import Intercepted, SteppedClock, filled_topic, key_of, new_topic, with_stores


def delivery_key(instance: Instance, subscription: Subscription, partition: int = 0) -> DeliveryKey:
    key = key_of(instance, "orders", partition)
    return DeliveryKey(subscription_id=subscription.subscription_id, topic_id=key.topic_id, partition=key.partition)


def described(instance: Instance) -> list[SubscriptionPartition]:
    return [*describe_subscription(instance, NAME, "", 10).partitions]


def store(instance: Instance, key: DeliveryKey, state: DeliveryState) -> None:
    assert instance.stores.push.put_delivery(key, state) == state


def test_pause_sends_nothing_and_resume_starts_the_deliveries_again(instance: Instance) -> None:
    new_topic(instance)
    made = create(instance)
    take_messages(instance)
    paused = pause_subscription(instance, NAME)
    assert (paused.is_paused, paused.version) == (True, made.version + 1)
    assert pause_subscription(instance, NAME) == paused
    put_subscription(instance, NAME, wish())
    assert take_messages(instance) == []
    [note] = instance.stores.push.subscriptions_of(key_of(instance, "orders").topic_id)
    assert note.is_paused
    resumed = resume_subscription(instance, NAME)
    assert [each.version for each in take_messages(instance)] == [resumed.version] == [made.version + 2]
    assert resume_subscription(instance, NAME) == resumed
    assert [each.version for each in take_messages(instance)] == [resumed.version], "a repeat sends again"


def test_error_of_a_resumption_behind_its_change_says_so(instance: Instance) -> None:
    new_topic(instance)
    create(instance)
    pause_subscription(instance, NAME)

    def refuse(_: object) -> None:
        raise PenstockError(ErrorCode.THROTTLED, "it is too fast")

    dying = with_stores(instance, deliveries=Intercepted(instance.stores.deliveries, switch_on=refuse))
    with pytest.raises(PenstockError) as caught:
        resume_subscription(dying, NAME)
    assert caught.value.maybe_applied


@pytest.mark.parametrize("call", [pause_subscription, resume_subscription, delete_subscription])
def test_unknown_subscription_is_refused(instance: Instance, call: Any) -> None:
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION, lambda: call(instance, NAME))
    refused(ErrorCode.INVALID_NAME, lambda: call(instance, "a b"))
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION, lambda: describe_subscription(instance, NAME, "", 10))


def test_subscriptions_are_listed_in_pages(instance: Instance) -> None:
    new_topic(instance)
    assert list_subscriptions(instance, 2, "") == ([], None)
    for name in ("c", "a", "b"):
        put_subscription(instance, name, wish(["orders"], {"lambda": FUNCTION}))
    first, after = list_subscriptions(instance, 2, "")
    assert ([each.name for each in first], after) == (["a", "b"], "b")
    last, after = list_subscriptions(instance, 1, "b")
    assert ([each.name for each in last], after) == (["c"], None)


def test_description_tells_place_lag_and_age_before_the_first_delivery(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    create(instance, start="earliest")
    clock.sleep_ms(7_000)
    [partition] = described(instance)
    assert (partition.place.offset, partition.place.lag, partition.place.oldest_age_ms) == (0, 3, 7_000)
    report = partition.report
    assert (report.result, report.error, report.attempts) == (LastResult.NONE, "", 0)
    assert (report.succeeded_ms, report.failing_since_ms, report.next_try_ms) == (None, None, None)


def test_description_tells_the_last_result(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    made = create(instance, start="earliest")
    key, now_ms = delivery_key(instance, made), clock.now_ms()
    state = DeliveryState(offset=Offset(0))
    store(instance, key, state)
    state = commit(state, Offset(1), now_ms, now_ms)
    store(instance, key, state)
    [partition] = described(instance)
    assert (partition.place.offset, partition.place.lag) == (1, 2)
    assert (partition.report.result, partition.report.succeeded_ms) == (LastResult.OK, now_ms)

    trouble = Trouble(first_failed_ms=now_ms + 1, range_end=Offset(3), attempts=1, error="no such customer")
    state = changed(state, trouble=trouble)
    store(instance, key, state)
    state = pause(state, now_ms + 60_000)
    store(instance, key, state)
    [partition] = described(instance)
    assert (partition.report.result, partition.report.error) == (LastResult.FAILING, "no such customer")
    assert (partition.report.attempts, partition.report.failing_since_ms) == (1, now_ms + 1)
    assert (partition.report.next_try_ms, partition.report.succeeded_ms) == (now_ms + 60_000, now_ms)
    clock.sleep_ms(60_000)
    assert described(instance)[0].report.next_try_ms is None, "its time has come"

    store(instance, key, changed(state, trouble=replace(trouble, outages=1, error="throttled")))
    assert described(instance)[0].report.result is LastResult.AWAY


@pytest.mark.parametrize(("mode", "result"), [("parallel", LastResult.OK), ("ordered", LastResult.FAILING)])
def test_description_of_trouble_that_is_well(
    instance: Instance, clock: SteppedClock, mode: str, result: LastResult
) -> None:
    """In parallel mode the lane has got over it. In ordered mode the target works, and a record still fails."""
    filled_topic(instance, records=3)
    made = create(instance, start="earliest", mode=mode, concurrency=1)
    now_ms = clock.now_ms()
    key = lane_delivery_key(made.subscription_id, 0) if mode == "parallel" else delivery_key(instance, made)
    trouble = Trouble(first_failed_ms=now_ms, range_end=Offset(3), is_well=True, error="too long")
    store(instance, key, DeliveryState(offset=Offset(0), succeeded_ms=now_ms, trouble=trouble))
    [partition] = described(instance)
    is_failing = result is LastResult.FAILING
    assert (partition.report.result, partition.report.error) == (result, "too long" if is_failing else "")
    assert partition.report.failing_since_ms == (now_ms if is_failing else None)


@pytest.mark.parametrize(("attempts", "is_well", "waits"), [(3, False, False), (4, False, True), (4, True, False)])
def test_description_tells_until_when_records_wait_for_patience(
    instance: Instance, clock: SteppedClock, attempts: int, is_well: bool, waits: bool
) -> None:
    new_topic(instance, "dead")
    filled_topic(instance, records=3)
    made = create(instance, start="earliest", dead_letter_topic="dead", patience_ms=70_000)
    now_ms = clock.now_ms()
    trouble = Trouble(
        first_failed_ms=now_ms, range_end=Offset(3), try_end=Offset(1), attempts=attempts, is_well=is_well, error="bad"
    )
    store(instance, delivery_key(instance, made), DeliveryState(offset=Offset(0), trouble=trouble))
    assert described(instance)[0].report.patience_until_ms == (now_ms + 70_000 if waits else None)


def test_description_counts_dead_letters_of_partitions_and_of_the_subscription_in_each_page(instance: Instance) -> None:
    new_topic(instance, "orders", 3)
    made = create(instance, start="earliest")
    for partition in range(3):
        state = DeliveryState(offset=Offset(9), dead_lettered=partition)
        store(instance, delivery_key(instance, made, partition), state)
    page = describe_subscription(instance, NAME, "", 2)
    assert ([each.dead_lettered for each in page.partitions], page.dead_lettered) == ([0, 1], 3)


def test_parallel_subscription_has_no_count_of_dead_letters(instance: Instance) -> None:
    new_topic(instance)
    create(instance, mode="parallel")
    page = describe_subscription(instance, NAME, "", 2)
    assert ([each.dead_lettered for each in page.partitions], page.dead_lettered) == ([None], None)


def test_description_counts_lanes(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    made = create(instance)
    now_ms = clock.now_ms()
    lanes = [
        LaneState(version=1, locked_until_ms=now_ms + 1, holder="m", nonce="n"),
        LaneState(version=1, due_ms=now_ms + 1, sleeper="m"),
        LaneState(version=1, deaths=2),
    ]
    for number, lane in enumerate(lanes):
        instance.stores.push.put_lane(LaneKey(subscription_id=made.subscription_id, lane=number), lane)
    assert describe_subscription(instance, NAME, "", 10).lanes == LaneCounts(working=1, resting=1, deaths=2)


def test_description_comes_in_pages(instance: Instance) -> None:
    new_topic(instance, "a", 2)
    new_topic(instance, "b", 12)
    create(instance, "b", "a")
    found: list[tuple[str, int]] = []
    after: str | None = ""
    while after is not None:
        page = describe_subscription(instance, NAME, after, 5)
        found += [(each.topic, each.key.partition) for each in page.partitions]
        after = page.next_after
    assert found == [("a", 0), ("a", 1)] + [("b", number) for number in range(12)]


def test_topic_that_was_deleted_has_no_partitions(instance: Instance) -> None:
    new_topic(instance)
    create(instance)
    delete_topic(instance, "orders")
    assert described(instance) == []


def test_parallel_subscription_counts_what_its_share_group_has_not_finished(instance: Instance) -> None:
    filled_topic(instance, records=3)
    made = create(instance, mode="parallel", start="earliest")
    lane = described(instance)[0].lane
    trouble = Trouble(first_failed_ms=1, range_end=Offset(1), error="bad")
    store(instance, lane_delivery_key(made.subscription_id, lane), DeliveryState(offset=Offset(0), trouble=trouble))
    [partition] = described(instance)
    assert (partition.place.offset, partition.place.lag) == (0, 3)
    assert (partition.report.result, partition.report.error) == (LastResult.FAILING, "bad")


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_deletion_takes_states_and_share_group_along_and_leaves_a_note(instance: Instance, mode: str) -> None:
    filled_topic(instance, records=3)
    made = create(instance, mode=mode)
    delete_subscription(instance, NAME)
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION, lambda: described(instance))
    states = instance.stores.push.states_of(made.subscription_id)
    assert (states.lanes, states.deliveries) == ({}, {})
    assert instance.stores.share.get_group(parallel_group_name(made.subscription_id)) is None
    assert instance.stores.push.subscriptions_of(key_of(instance, "orders").topic_id) == []
    assert [each.name for each in instance.stores.push.orphaned_states("", 10)] == [NAME]
    remove_states(instance, made.subscription_id)


def test_deletion_is_done_though_its_states_could_not_be_removed(instance: Instance) -> None:
    filled_topic(instance, records=3)
    made = create(instance)

    def fail_once(_delete: Any, _subscription_id: str) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "it does not answer")

    delete_subscription(with_stores(instance, push=Intercepted(instance.stores.push, delete_states=fail_once)), NAME)
    assert instance.stores.push.states_of(made.subscription_id).deliveries
    [(name, facts)] = instance.telemetry.take()[1]
    assert (name, facts["subscription"]) == ("subscription_states_left", NAME)
    remove_states(instance, made.subscription_id)
    assert not instance.stores.push.states_of(made.subscription_id).deliveries


def test_subscription_that_is_made_anew_has_another_id_and_no_state_of_the_old_one(instance: Instance) -> None:
    filled_topic(instance, records=3)
    old = create(instance)
    delete_subscription(instance, NAME)
    new = create(instance, start="earliest")
    assert new.subscription_id != old.subscription_id
    assert described(instance)[0].place.offset == 0
    assert replace(new, subscription_id=old.subscription_id, config=old.config) == old
