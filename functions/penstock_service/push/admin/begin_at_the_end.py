"""The places at which a subscription begins, if it starts at the latest records."""

from collections.abc import Iterable, Sequence

from penstock_core.ids import Offset, PartitionKey, TopicName
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance


def ends_of(instance: Instance, topics: Iterable[TopicName], since_ms: int) -> list[tuple[PartitionKey, Offset]]:
    """The end of each partition of these topics. One read for 100 partitions.

    A topic that was created after `since_ms`, the creation of its reader, has no older records: it is read whole. So
    the reader misses none of a topic that was made anew.
    """
    found: list[tuple[PartitionKey, Offset]] = []
    for name in topics:
        topic = instance.topic_cache.get(name)
        if topic.created_at_ms > since_ms:
            continue
        keys = [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]
        found += [(key, head.next_offset) for key, head in instance.stores.log.heads(keys).items()]
    return found


def begin_deliveries(
    instance: Instance, subscription: Subscription, begins: Sequence[tuple[PartitionKey, Offset]]
) -> None:
    """Store the states of an ordered subscription. One put for each.

    A state that is there stays: of a topic that the subscription has read before, or of a change at the same time.
    """
    states = [
        (
            DeliveryKey(subscription_id=subscription.subscription_id, topic_id=key.topic_id, partition=key.partition),
            DeliveryState(offset=offset),
        )
        for key, offset in begins
    ]
    instance.executor.map(lambda state: instance.stores.push.put_delivery(*state), states).all_ok()
