"""A subscription by the name that a caller gives."""

from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName, parse_subscription_name
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.lane import PushMessage, lane_of
from penstock_core.push.subscription import Subscription, message_of
from penstock_service.instance.instance import Instance


def find_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription as it is now. One read. Raises INVALID_NAME and UNKNOWN_SUBSCRIPTION."""
    found = instance.stores.push.get_subscription(parse_subscription_name(name))
    if found is None:
        raise PenstockError(
            ErrorCode.UNKNOWN_SUBSCRIPTION, f"subscription {name!r} does not exist: check its name, or create it"
        )
    return found


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


def start_deliveries(instance: Instance, subscription: Subscription) -> None:
    """Sends a message for each lane that has partitions, and none for a subscription that is paused.

    It may be repeated at any time: a delivery looks at the lane itself. One read for each topic that is not
    remembered, one or two calls to switch deliveries on, and one for each 10 lanes. If it raises, the look of each
    five minutes starts the deliveries.
    """
    instance.stores.deliveries.switch_on()
    if not subscription.is_paused:
        _send_messages(instance, subscription)


def ask_again(instance: Instance, subscription: Subscription, topic_id: TopicId, mirror: str) -> None:
    """Makes a version of a subscription that mirrors, so that each partition's mirror is asked where its log ends.

    It notes the topic's `mirror`. One transaction, and a call of the queue for each 10 lanes. If there is a newer
    version already, it is read, and only messages are sent: it may be that of this call, whose answer was lost.
    """
    known = {each: noted for each, noted in subscription.mirrored.items() if each in subscription.topics.values()}
    newer = replace(
        subscription, version=subscription.version + 1, mirrored={**known, **({topic_id: mirror} if mirror else {})}
    )
    try:
        instance.stores.push.change_subscription(subscription, newer)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
        found = instance.stores.push.get_subscription(subscription.name)
        if found is None or found.subscription_id != subscription.subscription_id or found.is_paused:
            return
        newer = found
    _send_messages(instance, newer)


def _send_messages(instance: Instance, subscription: Subscription) -> None:
    by_lane: dict[int, PushMessage] = {}
    for _, key in partitions_of(instance, subscription):
        lane = lane_of(key.partition_key, subscription.config.concurrency)
        by_lane[lane] = message_of(subscription, lane, key.partition_key)
    if by_lane:
        instance.stores.deliveries.send([*by_lane.values()])


def keep_deliveries_on(instance: Instance) -> None:
    """Switches deliveries on again if there is a subscription: a deployment may have reset them.

    One query, and one or two calls if so. Raises nothing: a log line tells of a failure, and the next run tries again.
    """
    try:
        if instance.stores.push.has_subscriptions():
            instance.stores.deliveries.switch_on()
    except PenstockError as error:
        instance.telemetry.log("deliveries_switch_failed", error=str(error))
