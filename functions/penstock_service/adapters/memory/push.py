"""PushStore in memory, as faithful as the one on DynamoDB."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from penstock_core.groups.sessions import concurrent_update
from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.push.lane import LaneKey, LaneState
from penstock_core.push.subscription import Subscription
from penstock_core.push.subscription_note import OrphanedStates, SubscriptionNote, note_of
from penstock_core.storage.dynamodb_limits import check_actions, check_item
from penstock_core.storage.push.delivery_item import delivery_item
from penstock_core.storage.push.lane_item import lane_item
from penstock_core.storage.push.subscription_item import subscription_item
from penstock_service.adapters.memory.contention import Contention
from penstock_service.ports.push import SubscriptionStates


class MemoryPushStore:
    """PushStore: the port documents its methods."""

    def __init__(self, contention: Contention | None = None) -> None:
        self._lock = threading.RLock()
        self._contention = contention
        self._subscriptions: dict[SubscriptionName, Subscription] = {}
        self._notes: dict[tuple[TopicId, SubscriptionName], SubscriptionNote] = {}
        self._orphans: dict[SubscriptionId, OrphanedStates] = {}
        self._lanes: dict[LaneKey, LaneState] = {}
        self._deliveries: dict[DeliveryKey, DeliveryState] = {}

    def held(self) -> AbstractContextManager[object]:
        """A context in which no other thread changes this store."""
        return self._lock

    def get_subscription(self, name: SubscriptionName) -> Subscription | None:
        return self._subscriptions.get(name)

    def list_subscriptions(self, after: str, limit: int) -> Sequence[Subscription]:
        with self._lock:
            names = sorted(name for name in self._subscriptions if name > after)
            return [self._subscriptions[name] for name in names[:limit]]

    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    def change_subscription(self, old: Subscription | None, new: Subscription) -> None:
        old_topics, new_topics = set[TopicId]() if old is None else {*old.topics.values()}, {*new.topics.values()}
        gone = old_topics - new_topics
        check_actions(1 + len(new_topics) + (1 if old is None else len(gone)))
        check_item(subscription_item(new))
        with self._lock:
            self._check_seen(new.name, old)
            self._subscriptions[new.name] = new
            for topic_id in gone:
                del self._notes[topic_id, new.name]
            for topic_id in new_topics:
                self._notes[topic_id, new.name] = note_of(new)
            if old is None:
                self._orphans.pop(new.subscription_id, None)

    def delete_subscription(self, seen: Subscription, now_ms: int) -> None:
        with self._lock:
            self._check_seen(seen.name, seen)
            del self._subscriptions[seen.name]
            for topic_id in {*seen.topics.values()}:
                del self._notes[topic_id, seen.name]
            self.note_orphans(OrphanedStates(subscription_id=seen.subscription_id, name=seen.name, since_ms=now_ms))

    def note_orphans(self, orphans: OrphanedStates) -> None:
        with self._lock:
            self._orphans[orphans.subscription_id] = orphans

    def orphaned_states(self, after: str, limit: int) -> Sequence[OrphanedStates]:
        with self._lock:
            ids = sorted(each for each in self._orphans if each > after)
            return [self._orphans[each] for each in ids[:limit]]

    def forget_orphans(self, subscription_id: SubscriptionId) -> None:
        with self._lock:
            self._orphans.pop(subscription_id, None)

    def subscriptions_of(self, topic_id: TopicId) -> Sequence[SubscriptionNote]:
        with self._lock:
            return [note for (topic, _), note in sorted(self._notes.items()) if topic == topic_id]

    def find_lane(self, key: LaneKey) -> LaneState | None:
        return self._lanes.get(key)

    def put_lane(self, key: LaneKey, new: LaneState) -> LaneState | None:
        check_item(lane_item(key, new))
        with self._lock:
            stored = self._lanes.get(key)
            if (stored.version if stored else 0) != new.version - 1:
                return stored
            self._lanes[key] = new
            return new

    def find_deliveries(self, keys: Sequence[DeliveryKey]) -> Mapping[DeliveryKey, DeliveryState]:
        with self._lock:
            return {key: self._deliveries[key] for key in keys if key in self._deliveries}

    def put_delivery(self, key: DeliveryKey, new: DeliveryState) -> DeliveryState | None:
        if self._contention is not None:
            self._contention.write(key)
        with self._lock:
            return self.put_delivery_held(key, new)

    def put_delivery_held(self, key: DeliveryKey, new: DeliveryState) -> DeliveryState | None:
        """As `put_delivery`, for a caller that holds this store."""
        check_item(delivery_item(key, new))
        stored = self._deliveries.get(key)
        if (stored.version if stored else 0) != new.version - 1:
            return stored
        self._deliveries[key] = new
        return new

    def states_of(self, subscription_id: SubscriptionId) -> SubscriptionStates:
        with self._lock:
            return SubscriptionStates(
                lanes={key.lane: state for key, state in self._lanes.items() if key.subscription_id == subscription_id},
                deliveries={
                    key: state for key, state in self._deliveries.items() if key.subscription_id == subscription_id
                },
            )

    def delete_states(self, subscription_id: SubscriptionId) -> None:
        with self._lock:
            states = self.states_of(subscription_id)
            for lane in states.lanes:
                del self._lanes[LaneKey(subscription_id=subscription_id, lane=lane)]
            for key in states.deliveries:
                del self._deliveries[key]

    def _check_seen(self, name: SubscriptionName, seen: Subscription | None) -> None:
        if _version(self._subscriptions.get(name)) != _version(seen):
            raise concurrent_update(f"subscription {name}")


def _version(subscription: Subscription | None) -> tuple[str, int] | None:
    return None if subscription is None else (subscription.subscription_id, subscription.version)
