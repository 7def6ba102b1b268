"""The contract of PushStore, held by the adapters in memory, with a database below, and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, SubscriptionId, SubscriptionName, TopicId, TopicName
from penstock_core.limits import PUSH_TOPICS_MAX
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.lane import LaneKey, LaneState
from penstock_core.push.subscription import OrphanedStates, Subscription, note_of
from penstock_core.storage.item import item_bytes
from penstock_core.storage.push.subscription_item import subscription_item
from tests.contract.conftest import Ports
from tests.core.push.push_samples import DELIVERY, FULL, ID, LANE, PLAIN

ORDERS, BILLS = TopicId("00ff"), TopicId("11ff")
OTHER_ID = SubscriptionId("cd" * 10)


def expect_conflict(ports: Ports, old: Subscription | None, new: Subscription | None) -> None:
    with pytest.raises(PenstockError) as caught:
        _change(ports, old, new)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert not caught.value.maybe_applied


def _change(ports: Ports, old: Subscription | None, new: Subscription | None) -> None:
    if new is not None:
        ports.push.change_subscription(old, new)
    elif old is not None:
        ports.push.delete_subscription(old, 9)


def many_topics(prefix: str) -> dict[TopicName, TopicId]:
    return {TopicName(f"{prefix}-{number}"): TopicId(f"{prefix}{number}") for number in range(PUSH_TOPICS_MAX)}


def test_subscription_is_stored_once_and_changed_from_the_version_that_was_seen(ports: Ports) -> None:
    assert ports.push.get_subscription(PLAIN.name) is None
    expect_conflict(ports, PLAIN, replace(PLAIN, version=1))
    ports.push.change_subscription(None, PLAIN)
    assert ports.push.get_subscription(PLAIN.name) == PLAIN
    expect_conflict(ports, None, replace(PLAIN, subscription_id=OTHER_ID))
    ports.push.change_subscription(PLAIN, FULL)
    expect_conflict(ports, PLAIN, replace(FULL, version=4))
    expect_conflict(ports, replace(FULL, subscription_id=OTHER_ID), replace(FULL, version=4))
    assert ports.push.get_subscription(PLAIN.name) == FULL


def test_secret_goes_when_the_target_needs_none(ports: Ports) -> None:
    ports.push.change_subscription(None, FULL)
    function = replace(FULL, version=4, target=PLAIN.target)
    ports.push.change_subscription(FULL, function)
    assert ports.push.get_subscription(FULL.name) == function


def test_subscription_is_deleted_at_the_version_that_was_seen(ports: Ports) -> None:
    ports.push.change_subscription(None, PLAIN)
    expect_conflict(ports, replace(PLAIN, version=1), None)
    expect_conflict(ports, replace(PLAIN, subscription_id=OTHER_ID), None)
    assert ports.push.orphaned_states("", 9) == []
    ports.push.delete_subscription(PLAIN, 9)
    assert ports.push.get_subscription(PLAIN.name) is None
    expect_conflict(ports, PLAIN, None)


def test_notes_follow_the_subscription(ports: Ports) -> None:
    assert ports.push.subscriptions_of(ORDERS) == []
    ports.push.change_subscription(None, FULL)
    assert ports.push.subscriptions_of(ORDERS) == ports.push.subscriptions_of(BILLS) == [note_of(FULL)]
    changed = replace(FULL, version=4, is_paused=False, topics={TopicName("orders"): ORDERS})
    ports.push.change_subscription(FULL, changed)
    assert ports.push.subscriptions_of(ORDERS) == [note_of(changed)]
    assert ports.push.subscriptions_of(BILLS) == []
    ports.push.delete_subscription(changed, 9)
    assert ports.push.subscriptions_of(ORDERS) == []


def test_refused_change_leaves_the_notes(ports: Ports) -> None:
    ports.push.change_subscription(None, PLAIN)
    expect_conflict(ports, None, replace(FULL, subscription_id=OTHER_ID))
    expect_conflict(ports, FULL, replace(FULL, version=4))
    assert ports.push.subscriptions_of(ORDERS) == [note_of(PLAIN)]
    assert ports.push.subscriptions_of(BILLS) == []


def test_topic_tells_all_its_subscriptions_by_name(ports: Ports) -> None:
    named = [replace(PLAIN, name=SubscriptionName(name), version=number) for number, name in enumerate("bca")]
    for each in named:
        ports.push.change_subscription(None, each)
    assert ports.push.subscriptions_of(ORDERS) == [note_of(each) for each in (named[2], named[0], named[1])]


def test_subscriptions_are_listed_by_name_in_pages(ports: Ports) -> None:
    assert not ports.push.has_subscriptions()
    for name in ("b", "a", "-c", "Z"):
        ports.push.change_subscription(None, replace(PLAIN, name=SubscriptionName(name)))
    assert [each.name for each in ports.push.list_subscriptions("", 3)] == ["-c", "Z", "a"]
    assert ports.push.has_subscriptions()
    assert [each.name for each in ports.push.list_subscriptions("a", 3)] == ["b"]


def test_most_topics_are_exchanged_and_deleted_in_one_transaction(ports: Ports) -> None:
    old = replace(PLAIN, topics=many_topics("old"))
    new = replace(PLAIN, version=1, topics=many_topics("new"))
    ports.push.change_subscription(None, old)
    ports.push.change_subscription(old, new)
    assert ports.push.subscriptions_of(TopicId("old7")) == []
    assert ports.push.subscriptions_of(TopicId("new7")) == [note_of(new)]
    ports.push.delete_subscription(new, 9)
    assert ports.push.subscriptions_of(TopicId("new7")) == []


def test_change_of_more_than_a_transaction_holds_is_refused(ports: Ports) -> None:
    topics = {**many_topics("a"), **many_topics("b"), **many_topics("c")}
    with pytest.raises(PenstockError) as caught:
        ports.push.change_subscription(None, replace(PLAIN, topics=topics))
    assert caught.value.code is ErrorCode.STORAGE_REFUSED
    assert ports.push.get_subscription(PLAIN.name) is None


def test_states_without_a_subscription_are_noted_until_they_are_forgotten(ports: Ports) -> None:
    deleted = OrphanedStates(subscription_id=ID, name=PLAIN.name, since_ms=9)
    begun = OrphanedStates(subscription_id=OTHER_ID, name=SubscriptionName("other"), since_ms=3)
    ports.push.note_orphans(begun)
    ports.push.change_subscription(None, PLAIN)
    ports.push.delete_subscription(PLAIN, 9)
    assert ports.push.orphaned_states("", 9) == [deleted, begun]
    assert ports.push.orphaned_states(ID, 9) == [begun]
    assert ports.push.orphaned_states("", 1) == [deleted]
    for _ in range(2):
        ports.push.forget_orphans(ID)
    assert ports.push.orphaned_states("", 9) == [begun]


def test_subscription_takes_over_the_states_that_were_noted_for_it(ports: Ports) -> None:
    other = OrphanedStates(subscription_id=OTHER_ID, name=PLAIN.name, since_ms=3)
    for orphans in (OrphanedStates(subscription_id=ID, name=PLAIN.name, since_ms=3), other):
        ports.push.note_orphans(orphans)
    expect_conflict(ports, PLAIN, replace(PLAIN, version=1))
    assert len(ports.push.orphaned_states("", 9)) == 2
    ports.push.change_subscription(None, PLAIN)
    assert ports.push.orphaned_states("", 9) == [other]


def test_lane_is_written_only_from_the_version_before(ports: Ports) -> None:
    first = LaneState(version=1, holder="m-1", nonce="n-1", locked_until_ms=9)
    second = replace(first, version=2, nonce="n-2", deaths=1)
    assert ports.push.find_lane(LANE) is None
    assert ports.push.put_lane(LANE, second) is None, "there is no version 1"
    assert ports.push.find_lane(LANE) is None
    assert ports.push.put_lane(LANE, first) == first
    assert ports.push.put_lane(LANE, replace(first, nonce="n-3")) == first, "another writer was faster"
    assert ports.push.put_lane(LANE, second) == second == ports.push.find_lane(LANE)
    assert ports.push.put_lane(LANE, replace(second, version=4)) == second
    assert ports.push.put_lane(LANE, first) == second, "a late write changes nothing"
    assert ports.push.find_lane(replace(LANE, lane=4)) is None


def test_state_is_written_only_from_the_version_before(ports: Ports) -> None:
    first = DeliveryState(offset=Offset(5))
    failed = replace(
        first, version=2, next_try_ms=7, trouble=Trouble(first_failed_ms=4, range_end=Offset(9), attempts=1, error="é")
    )
    well = replace(first, version=3, offset=Offset(9), succeeded_ms=8)
    assert ports.push.put_delivery(DELIVERY, failed) is None
    assert ports.push.find_deliveries([DELIVERY]) == {}
    assert ports.push.put_delivery(DELIVERY, first) == first
    assert ports.push.put_delivery(DELIVERY, replace(first, offset=Offset(6))) == first
    assert ports.push.put_delivery(DELIVERY, failed) == failed
    assert ports.push.put_delivery(DELIVERY, well) == well
    assert ports.push.put_delivery(DELIVERY, failed) == well, "a late write changes nothing"
    assert ports.push.find_deliveries([DELIVERY]) == {DELIVERY: well}


def test_same_write_again_finds_itself(ports: Ports) -> None:
    """As after a lost answer: the writer learns that its own first attempt was applied."""
    for lane in (LaneState(version=1, nonce="n-1"), LaneState(version=2, nonce="n-1")):
        assert ports.push.put_lane(LANE, lane) == lane == ports.push.put_lane(LANE, lane)
    for state in (DeliveryState(offset=Offset(5)), DeliveryState(offset=Offset(6), version=2)):
        assert ports.push.put_delivery(DELIVERY, state) == state == ports.push.put_delivery(DELIVERY, state)


def test_states_of_more_partitions_than_one_call_reads_are_found(ports: Ports) -> None:
    keys = [replace(DELIVERY, partition=Partition(number)) for number in range(230)]
    states = {key: DeliveryState(offset=Offset(key.partition)) for key in keys[:120]}
    for key, state in states.items():
        ports.push.put_delivery(key, state)
    assert ports.push.find_deliveries([]) == {}
    assert ports.push.find_deliveries(keys) == states


def test_states_of_one_subscription_are_read_and_removed_together(ports: Ports) -> None:
    lanes = {number: LaneState(version=1, nonce=f"{number}") for number in range(30)}
    deliveries = {
        replace(DELIVERY, topic_id=topic_id, partition=Partition(number)): DeliveryState(offset=Offset(number))
        for topic_id in (ORDERS, TopicId(""))
        for number in range(20)
    }
    other = replace(DELIVERY, subscription_id=OTHER_ID)
    for number, lane in lanes.items():
        ports.push.put_lane(LaneKey(subscription_id=ID, lane=number), lane)
    for key, state in (*deliveries.items(), (other, DeliveryState(offset=Offset(1)))):
        ports.push.put_delivery(key, state)
    found = ports.push.states_of(ID)
    assert (found.lanes, found.deliveries) == (lanes, deliveries)
    for _ in range(2):
        ports.push.delete_states(ID)
        found = ports.push.states_of(ID)
        assert (found.lanes, found.deliveries) == ({}, {})
    assert [*ports.push.states_of(OTHER_ID).deliveries] == [other]


def test_largest_subscription_fits_into_an_item(ports: Ports) -> None:
    topics = {TopicName(f"{number:0>249}"): TopicId(f"{number:0>20}") for number in range(PUSH_TOPICS_MAX)}
    largest = replace(FULL, topics=topics)
    assert item_bytes(subscription_item(largest)) < 16 * 1_024
    ports.push.change_subscription(None, largest)
    assert ports.push.get_subscription(largest.name) == largest
