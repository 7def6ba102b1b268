"""All deliveries that are due: for a service in one process, without a stream and functions.

It finds work as the look does, by places and heads. So the work goes on after a restart, which loses all messages.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock_core.limits import PUSH_LIST_MAX
from penstock_core.push.message import PushMessage
from penstock_core.push.subscription import Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.look import due_work, heads_of

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
    start_due(instance)
    worked = 0
    while received := queue.receive(_AT_ONCE):
        for each in received:
            worked += 1
            deliver_received(instance, queue, each)
    return worked


def start_due(instance: Instance) -> None:
    """Sends the messages of all subscriptions for work that is due now."""
    for subscription in _subscriptions(instance):
        if not subscription.is_paused:
            _start(instance, subscription)


def deliver_received(instance: Instance, queue: ReceivingQueue, received: Received) -> None:
    """Delivers what the message asks for. Raises what `deliver` raises, and the message is hidden for a while then."""
    receipt = Receipt(message=received.message, message_id=received.message_id, handle=received.receipt)
    if deliver(instance, receipt) is Ending.DELETE:
        queue.delete(received.receipt)


def _start(instance: Instance, subscription: Subscription) -> None:
    """Sends a message for each lane with work that is due, unless a delivery has the lane, or it rests."""
    now_ms = instance.clock.now_ms()
    states = instance.stores.push.states_of(subscription.subscription_id)
    busy = {number for number, lane in states.lanes.items() if max(lane.locked_until_ms, lane.due_ms) > now_ms}
    messages: dict[int, PushMessage] = {}
    for lane, key, due_ms in due_work(instance, subscription, states, heads_of(instance, subscription)):
        if due_ms <= now_ms and lane not in busy:
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
