"""The notes about a subscription: one of each topic, and one of states that have no subscription."""

from dataclasses import dataclass

from penstock_core.ids import SubscriptionId, SubscriptionName
from penstock_core.push.subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionNote:
    """What the small item of a topic tells of one of its subscriptions: enough to send it a message."""

    name: SubscriptionName
    subscription_id: SubscriptionId
    version: int
    concurrency: int
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedStates:
    """Lanes and states of a subscription that is gone, or not there yet, since `since_ms`. The look removes them."""

    subscription_id: SubscriptionId
    name: SubscriptionName
    since_ms: int


def note_of(subscription: Subscription) -> SubscriptionNote:
    """The note that each topic of the subscription has."""
    return SubscriptionNote(
        name=subscription.name,
        subscription_id=subscription.subscription_id,
        version=subscription.version,
        concurrency=subscription.config.concurrency,
        is_paused=subscription.is_paused,
    )
