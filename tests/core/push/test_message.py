import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, SubscriptionId, SubscriptionName, TopicId
from penstock_core.push.message import PushMessage, decode_push_message, encode_push_message

MESSAGE = PushMessage(name=SubscriptionName("pack"), subscription_id=SubscriptionId("0a" * 10), lane=3, version=2)


@pytest.mark.parametrize("partition", [None, PartitionKey(TopicId("ab" * 10), Partition(7))])
def test_message_round_trips(partition: PartitionKey | None) -> None:
    message = PushMessage(
        name=MESSAGE.name, subscription_id=MESSAGE.subscription_id, lane=3, version=2, partition=partition
    )
    assert decode_push_message(encode_push_message(message)) == message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"subscription": "a", "id": "b", "lane": "x", "version": 1}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(PenstockError) as refused:
        decode_push_message(text)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
