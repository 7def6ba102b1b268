from penstock_core.ids import Partition, PartitionKey, SubscriptionId, TopicId
from penstock_core.push.delivery import DeliveryKey


def test_key_tells_the_partition() -> None:
    key = DeliveryKey(subscription_id=SubscriptionId("ab" * 10), topic_id=TopicId("00ff"), partition=Partition(7))
    assert key.partition_key == PartitionKey(TopicId("00ff"), Partition(7))
