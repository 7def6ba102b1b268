"""The messages that wake readers: their channels, their events, and how many partitions share one."""

import json

import pytest

from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import REQUEST_PARTITIONS_MAX, WAKE_UP_PARTITIONS_MAX
from penstock_core.log.index import Waiter
from penstock_core.log.wake_up import PushEvent, WakeUp, WakeUpMessage, messages, partition_channel, topic_channel
from penstock_core.storage.head_item import parse_push_event

APPSYNC_EVENT_BYTES_MAX = 5 * 1024  # of one metered unit (AppSync pricing); an event may have 240 KB


def wake_up(topic: str, partition: int, next_offset: int | None = 7) -> WakeUp:
    key = PartitionKey(TopicId(topic), Partition(partition))
    return WakeUp(key=key, next_offset=None if next_offset is None else Offset(next_offset))


def test_message_of_one_partition_goes_to_its_channel() -> None:
    assert messages([wake_up("ab12", 3, 1207)]) == [
        WakeUpMessage(channel="/wake/ab12/3", event='{"topic_id":"ab12","partition":3,"next_offset":1207}')
    ]
    assert json.loads(messages([wake_up("ab12", 3, None)])[0].event)["next_offset"] is None


def test_few_partitions_of_a_topic_have_a_message_each() -> None:
    few = [wake_up("t1", number) for number in range(WAKE_UP_PARTITIONS_MAX)]
    assert [each.channel for each in messages([*few, wake_up("t2", 0)])] == [
        *(f"/wake/t1/{number}" for number in range(WAKE_UP_PARTITIONS_MAX)),
        "/wake/t2/0",
    ]


def test_many_partitions_of_a_topic_share_a_message() -> None:
    many = [wake_up("t1", number, number or None) for number in range(WAKE_UP_PARTITIONS_MAX + 1)]
    shared, other = messages([many[0], wake_up("t2", 4), *many[1:]])
    assert shared.channel == topic_channel(TopicId("t1")) == "/wake/t1/all"
    expected = {str(number): number or None for number in range(len(many))}
    assert json.loads(shared.event) == {"topic_id": "t1", "partitions": expected}
    assert other.channel == partition_channel(PartitionKey(TopicId("t2"), Partition(4)))


@pytest.mark.parametrize("count", [1, WAKE_UP_PARTITIONS_MAX, REQUEST_PARTITIONS_MAX])
def test_event_is_one_metered_unit_when_a_request_names_as_many_partitions_as_it_may(count: int) -> None:
    sent = messages([wake_up("f" * 20, number, 2**63 - 1) for number in range(count)])
    assert all(len(each.event.encode()) < APPSYNC_EVENT_BYTES_MAX for each in sent)


def test_no_wake_ups_make_no_message() -> None:
    assert messages([]) == []


def test_write_that_takes_the_waiter_out_of_a_head_is_an_event_and_no_other_write() -> None:
    key = {"pk": {"S": "t#0"}, "sk": {"S": "head"}}
    before = {**key, "next_offset": {"N": "4"}, Waiter.PUSH.value: {"N": "1"}}
    after = {**key, "next_offset": {"N": "7"}}
    event = PushEvent(key=PartitionKey(TopicId("t"), Partition(0)), next_offset=Offset(7))
    assert parse_push_event({"Keys": key, "OldImage": before, "NewImage": after}) == event
    assert parse_push_event({"Keys": key, "OldImage": after, "NewImage": after}) is None
