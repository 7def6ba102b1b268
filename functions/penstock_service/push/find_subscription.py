"""A subscription by the name that a caller gives."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_subscription_name
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance


def find_subscription(instance: Instance, name: str) -> Subscription:
    """The subscription as it is now. One read. Raises INVALID_NAME and UNKNOWN_SUBSCRIPTION."""
    found = instance.stores.push.get_subscription(parse_subscription_name(name))
    if found is None:
        raise PenstockError(ErrorCode.UNKNOWN_SUBSCRIPTION, f"subscription {name!r} does not exist: create it first")
    return found
