"""The partitions that a subscription delivers."""

from penstock_core.ids import TopicName
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance


def partitions_of(instance: Instance, subscription: Subscription) -> list[tuple[TopicName, DeliveryKey]]:
    """All partitions by topic and number. A topic that was deleted, or made anew since, has none.

    One read for each topic that is not remembered.
    """
    found = []
    for name, topic_id in sorted(subscription.topics.items()):
        topic = instance.topic_cache.find(name)
        if topic is not None and topic.topic_id == topic_id:
            found += [
                (name, DeliveryKey(subscription_id=subscription.subscription_id, topic_id=topic_id, partition=number))
                for number in topic.all_partitions()
            ]
    return found
