"""The key of a partition in a subscription: what `DeliveryState` is stored under."""

from dataclasses import dataclass

from penstock_core.ids import Partition, PartitionKey, SubscriptionId, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryKey:
    """The state of one partition in one subscription."""

    subscription_id: SubscriptionId
    topic_id: TopicId
    partition: Partition

    @property
    def partition_key(self) -> PartitionKey:
        """The partition."""
        return PartitionKey(self.topic_id, self.partition)
