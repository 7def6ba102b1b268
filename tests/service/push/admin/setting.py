"""Subscriptions for the tests of their use cases."""

from typing import Any

from penstock_core.push.lane import PushMessage
from penstock_core.push.subscription import Subscription
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription

NAME = "packing"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


def wish(topics: list[str] | None = None, target: dict[str, Any] | None = None, **settings: Any) -> SubscriptionWish:
    return SubscriptionWish(topics=topics, target=target, settings=settings)


def create(instance: Instance, *topics: str, target: dict[str, Any] | None = None, **settings: Any) -> Subscription:
    """The subscription `packing` of these topics, of `orders` by default, to a function by default."""
    wanted = wish([*topics] or ["orders"], target or {"lambda": FUNCTION}, **settings)
    return put_subscription(instance, NAME, wanted)[0]


def alter(instance: Instance, topics: list[str] | None = None, **settings: Any) -> Subscription:
    return put_subscription(instance, NAME, wish(topics, **settings))[0]


def queue_of(instance: Instance) -> MemoryDeliveryQueue:
    queue = instance.stores.deliveries
    assert isinstance(queue, MemoryDeliveryQueue)
    return queue


def take_messages(instance: Instance) -> list[PushMessage]:
    """The messages that were sent since the last call."""
    queue = queue_of(instance)
    taken = []
    while received := queue.receive(10):
        for each in received:
            queue.delete(each.receipt)
            taken.append(each.message)
    return taken
