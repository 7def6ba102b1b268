"""Pause and resume a subscription.

Delete a subscription: first itself, then its states. The note of its states stays.

A delivery that runs meanwhile may write a state once more. The look of each five minutes removes such states, what a
deletion that died has left, and then the note. A parallel subscription has a share group too, which leaves a note of
its own for the retention run (share/admin/delete_share_group.py).
"""

from dataclasses import replace

from penstock_core.errors import PenstockError
from penstock_core.ids import SubscriptionId
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import StageTarget
from penstock_service.instance.instance import Instance
from penstock_service.push.parallel.parallel_group import parallel_group_name
from penstock_service.push.subscriptions import find_subscription, start_deliveries


def pause_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription, which begins no further delivery. Each partition keeps its place.

    A delivery that runs already may go on for a minute. One read, and one transaction unless it is paused already.
    Raises INVALID_NAME, UNKNOWN_SUBSCRIPTION, and CONCURRENT_UPDATE if somebody else changes it meanwhile.
    """
    return _switched(instance, name, is_paused=True)


def resume_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription, which goes on where it was. One that mirrors asks where the mirror's logs end.

    Costs and raises as `pause_subscription`, and what `start_deliveries` does. A repeat starts the deliveries again.
    """
    resumed = _switched(instance, name, is_paused=False)
    with errors_maybe_applied():
        start_deliveries(instance, resumed)
    return resumed


def _switched(instance: Instance, name: str, *, is_paused: bool) -> Subscription:
    found = find_subscription(instance, name)
    must_ask = isinstance(found.target, StageTarget) and not is_paused
    if found.is_paused == is_paused and not must_ask:
        return found
    switched = replace(found, is_paused=is_paused, version=found.version + 1)
    instance.stores.push.change_subscription(found, switched)
    return switched


def delete_subscription(instance: Instance, name: str) -> SubscriptionId:
    """Remove the subscription, and give its id. A delivery that runs already may go on for a minute.

    One read, one transaction, and what `remove_states` costs; the subscription is gone even if that fails. Raises
    INVALID_NAME, UNKNOWN_SUBSCRIPTION, and CONCURRENT_UPDATE if somebody else changes it meanwhile.
    """
    found = find_subscription(instance, name)
    instance.stores.push.delete_subscription(found, instance.clock.now_ms())
    try:
        remove_states(instance, found.subscription_id)
    except PenstockError as error:
        instance.telemetry.log("subscription_states_left", subscription=name, error=str(error))
    return found.subscription_id


def remove_states(instance: Instance, subscription_id: SubscriptionId) -> None:
    """Remove the lanes, states and share group of a subscription that is gone. It may be repeated.

    One read, a query and a write for each 25 states, and one transaction if there is a share group.
    """
    group = instance.stores.share.get_group(parallel_group_name(subscription_id))
    if group is not None:
        instance.stores.share.delete_group(group)
    instance.stores.push.delete_states(subscription_id)
