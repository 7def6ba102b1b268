"""All deliveries that are due, one after the other: for a service in one process, without a stream and functions.

It finds what got records by the push waiters of heads: a head without one has records that a subscription may want, or
a delivery that rests until a time.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock_core.limits import HEADS_AT_ONCE, PUSH_LIST_MAX
from penstock_core.push.lane import lane_of
from penstock_core.push.message import PushMessage
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.subscription_partitions import partitions_of

_AT_ONCE = 10


class Received(Protocol):
    """One receipt of a message."""

    @property
    def message(self) -> PushMessage:
        """The message."""

    @property
    def message_id(self) -> str:
        """The message's id, the same in each receipt."""

    @property
    def receipt(self) -> str:
        """The handle of this receipt."""


class ReceivingQueue(Protocol):
    """The receiving side of the queue of deliveries, as Lambda has it on SQS."""

    def receive(self, limit: int = 1) -> Sequence[Received]:
        """At most `limit` visible messages, which are hidden then."""

    def delete(self, receipt: str) -> None:
        """Removes the message of the receipt."""


def deliver_due(instance: Instance, queue: ReceivingQueue) -> int:
    """Starts what is due, works until no message is visible, and gives how many messages there were.

    Raises what `deliver` raises. The message is hidden for a while then.
    """
    for subscription in _subscriptions(instance):
        if not subscription.is_paused:
            _start(instance, subscription)
    worked = 0
    while received := queue.receive(_AT_ONCE):
        for each in received:
            worked += 1
            receipt = Receipt(message=each.message, message_id=each.message_id, handle=each.receipt)
            if deliver(instance, receipt) is Ending.DELETE:
                queue.delete(each.receipt)
    return worked


def _start(instance: Instance, subscription: Subscription) -> None:
    """Sends a message for each lane with a head that nobody waits at, unless a delivery has the lane, or it rests."""
    now_ms = instance.clock.now_ms()
    lanes = instance.stores.push.states_of(subscription.subscription_id).lanes
    busy = {number for number, lane in lanes.items() if max(lane.locked_until_ms, lane.due_ms) > now_ms}
    keys = [key.partition_key for _, key in partitions_of(instance, subscription)]
    messages: dict[int, PushMessage] = {}
    for start in range(0, len(keys), HEADS_AT_ONCE):
        for key, head in instance.stores.log.heads(keys[start : start + HEADS_AT_ONCE]).items():
            lane = lane_of(key, subscription.config.concurrency)
            if not head.has_push_waiter and lane not in busy:
                messages[lane] = PushMessage(
                    name=subscription.name,
                    subscription_id=subscription.subscription_id,
                    lane=lane,
                    version=subscription.version,
                    partition=key,
                )
    if messages:
        instance.stores.deliveries.send([*messages.values()])


def _subscriptions(instance: Instance) -> Iterator[Subscription]:
    after = ""
    while page := instance.stores.push.list_subscriptions(after, PUSH_LIST_MAX):
        yield from page
        after = page[-1].name
