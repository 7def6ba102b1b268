"""The ports of push subscriptions and of wake-ups. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a function that carries records loads no subscriptions
    from collections.abc import Mapping, Sequence

    from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId
    from penstock_core.log.wake_up import WakeUpMessage
    from penstock_core.mirror.push import MirrorPush, PushAnswer
    from penstock_core.push.batch import Answer, Failed, PushBatch
    from penstock_core.push.delivery import DeliveryKey, DeliveryState
    from penstock_core.push.lane import LaneKey, LaneState, PushMessage
    from penstock_core.push.subscription import OrphanedStates, Subscription, SubscriptionNote
    from penstock_core.push.targets.target import StageTarget, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStates:
    """The lanes by number, and the states of partitions."""

    lanes: Mapping[int, LaneState]
    deliveries: Mapping[DeliveryKey, DeliveryState]


class PushStore(Protocol):
    """Subscriptions, their lanes and the states of their partitions. Reads are consistent."""

    def get_subscription(self, name: SubscriptionName) -> Subscription | None:
        """The subscription, or None if there is none. One read."""

    def list_subscriptions(self, after: str, limit: int) -> Sequence[Subscription]:
        """At most `limit` subscriptions whose names come after `after`, sorted. One query."""

    def has_subscriptions(self) -> bool:
        """True if there is a subscription. One query, which reads no item: a role may be narrowed to it."""

    def change_subscription(self, old: Subscription | None, new: Subscription) -> None:
        """Stores `new` and the notes of its topics, in place of `old`, which is None if there is none yet.

        Notes of topics that `new` has not are removed. So is a note of `new`'s states as orphaned, where `old` is None.
        Raises CONCURRENT_UPDATE unless the stored one has the id and the version of `old`. One transaction, sent once.
        """

    def delete_subscription(self, seen: Subscription, now_ms: int) -> None:
        """Removes the subscription and its notes, and notes its states as orphaned.

        Raises CONCURRENT_UPDATE if it has changed. One transaction, sent once.
        """

    def note_orphans(self, orphans: OrphanedStates) -> None:
        """Notes the states that a creation is going to write before the subscription is there. One put."""

    def orphaned_states(self, after: str, limit: int) -> Sequence[OrphanedStates]:
        """At most `limit` notes of orphaned states whose ids come after `after`, sorted by id. One query."""

    def forget_orphans(self, subscription_id: SubscriptionId) -> None:
        """Removes the note, once the states are gone. One delete."""

    def subscriptions_of(self, topic_id: TopicId) -> Sequence[SubscriptionNote]:
        """The notes of all subscriptions of a topic, by name. One query for each MB."""

    def find_lane(self, key: LaneKey) -> LaneState | None:
        """The lane's state, None if it was never taken. One read."""

    def put_lane(self, key: LaneKey, new: LaneState) -> LaneState | None:
        """Stores the state if the stored version is the one before it: none at all for version 1.

        Returns what is stored then. It is `new` also where this call's own first attempt has stored it. One
        conditional put, repeated if it may have been applied.
        """

    def find_deliveries(self, keys: Sequence[DeliveryKey]) -> Mapping[DeliveryKey, DeliveryState]:
        """The states of these partitions. A partition that has none is missing. One call for each 100."""

    def put_delivery(self, key: DeliveryKey, new: DeliveryState) -> DeliveryState | None:
        """As `put_lane`, for the state of a partition."""

    def states_of(self, subscription_id: SubscriptionId) -> SubscriptionStates:
        """All lanes and states of a subscription. One query for each MB."""

    def delete_states(self, subscription_id: SubscriptionId) -> None:
        """Removes all lanes and states of a subscription that is gone. A query, and a write for each 25."""


class DeliveryQueue(Protocol):
    """The queue that starts deliveries. A message may be late or doubled; none is lost but by its age of 14 days."""

    def send(self, messages: Sequence[PushMessage]) -> None:
        """Sends the messages. One call for each 10. Raises if one of them may not have been sent."""

    def postpone(self, receipt: str, delay_ms: int) -> None:
        """Hides a received message for so long, `PUSH_PAUSE_MS_MAX` at most. One call.

        The receiver does not delete the message then: it reports it as failed.
        """

    def switch_on(self) -> None:
        """Lets messages be taken, and the look each five minutes begin. It may be repeated at any time."""


class Targets(Protocol):
    """The targets that lie outside of Penstock: functions, queues, buses and HTTPS endpoints."""

    def check(self, target: Target) -> None:
        """Tries whether the service may deliver there, without delivering anything.

        Raises ACCESS_DENIED with the command that grants it, and INVALID_CONFIG for a target that does not exist.
        """

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:
        """Gives the batch to the target, once, and returns its answer within about `timeout_ms`. Raises nothing."""

    def mirror(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:
        """Sends the push to the stage that mirrors the topic, once, as `deliver` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpPlace:
    """Where readers receive wake-ups: the WebSocket to open, and the names of its two hosts.

    A client opens `realtime_url` and sends `realtime_host` as its Host header. It signs its requests for `host`.
    """

    realtime_url: str
    host: str
    realtime_host: str


class WakeUps(Protocol):
    """Tells waiting readers that partitions have grown. A message may be lost, late or doubled."""

    @property
    def place(self) -> WakeUpPlace | None:
        """Where readers receive wake-ups, None if the stage has none. Sends no call."""

    def publish(self, message: WakeUpMessage) -> None:
        """Sends the message to all readers of its channel at this time. One call. Does nothing without a place."""
