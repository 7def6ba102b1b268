"""Pause and resume a subscription."""

from dataclasses import replace

from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.find_subscription import find_subscription
from penstock_service.push.start_deliveries import start_deliveries


def pause_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription, which begins no further delivery. Each partition keeps its place.

    A delivery that runs already may go on for a minute. One read, and one transaction unless it is paused already.
    Raises INVALID_NAME, UNKNOWN_SUBSCRIPTION, and CONCURRENT_UPDATE if somebody else changes it meanwhile.
    """
    return _switched(instance, name, is_paused=True)


def resume_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription, which goes on where it was.

    Costs and raises as `pause_subscription`, and what `start_deliveries` does. A repeat starts the deliveries again.
    """
    resumed = _switched(instance, name, is_paused=False)
    start_deliveries(instance, resumed)
    return resumed


def _switched(instance: Instance, name: str, *, is_paused: bool) -> Subscription:
    found = find_subscription(instance, name)
    if found.is_paused == is_paused:
        return found
    switched = replace(found, is_paused=is_paused, version=found.version + 1)
    instance.stores.push.change_subscription(found, switched)
    return switched
