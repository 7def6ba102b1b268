"""Starts the deliveries of one subscription, after it was created, altered or resumed, and keeps deliveries on."""

from penstock_core.errors import PenstockError
from penstock_core.push.lane import lane_of
from penstock_core.push.message import PushMessage
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.subscription_partitions import partitions_of


def start_deliveries(instance: Instance, subscription: Subscription) -> None:
    """Sends a message for each lane that has partitions, and none for a subscription that is paused.

    It may be repeated at any time: a delivery looks at the lane itself. One read for each topic that is not
    remembered, one or two calls to switch deliveries on, and one for each 10 lanes. If it raises, the look of each
    five minutes starts the deliveries.
    """
    instance.stores.deliveries.switch_on()
    if subscription.is_paused:
        return
    by_lane: dict[int, PushMessage] = {}
    for _, key in partitions_of(instance, subscription):
        lane = lane_of(key.partition_key, subscription.config.concurrency)
        by_lane[lane] = PushMessage(
            name=subscription.name,
            subscription_id=subscription.subscription_id,
            lane=lane,
            version=subscription.version,
            partition=key.partition_key,
        )
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
