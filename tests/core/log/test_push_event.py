from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.log.index import Waiter
from penstock_core.log.push_event import PushEvent
from penstock_core.storage.head_item import parse_push_event


def test_write_that_takes_the_waiter_out_of_a_head_is_an_event_and_no_other_write() -> None:
    key = {"pk": {"S": "t#0"}, "sk": {"S": "head"}}
    before = {**key, "next_offset": {"N": "4"}, Waiter.PUSH.value: {"N": "1"}}
    after = {**key, "next_offset": {"N": "7"}}
    event = PushEvent(key=PartitionKey(TopicId("t"), Partition(0)), next_offset=Offset(7))
    assert parse_push_event({"Keys": key, "OldImage": before, "NewImage": after}) == event
    assert parse_push_event({"Keys": key, "OldImage": after, "NewImage": after}) is None
