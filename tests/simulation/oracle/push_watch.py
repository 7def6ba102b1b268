"""Tells each push subscription's oracle of the effects that concern it: at its item, lanes, places and share group."""

from collections.abc import Callable
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import SubscriptionId
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import TopicTarget
from penstock_core.transaction import Move
from tests.simulation.oracle.pushes import PushOracle, dead_letters_of
from tests.simulation.service.simulation import Simulation


class PushWatch:
    """The oracles of all subscriptions of a run. `make` makes the one of a new subscription, None if none is wanted."""

    def __init__(self, simulation: Simulation, make: Callable[[Subscription], PushOracle | None]) -> None:
        self._simulation = simulation
        self._make = make
        self.oracles: dict[SubscriptionId, PushOracle] = {}
        simulation.storage.observers.append(self._observe)

    def created(self, subscription: Subscription) -> None:
        """The subscription is there from now on."""
        oracle = self._make(subscription)
        if oracle is None:
            return
        self.oracles[subscription.subscription_id] = oracle
        states = self._simulation.stores.push.states_of(subscription.subscription_id).deliveries
        oracle.begins_at({key: state.offset for key, state in states.items()})

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if label == "push":
            self._observe_push(method, arguments, outcome)
        elif label == "share" and method == "update" and outcome.is_applied:
            oracle = self._living(arguments[0].share_group_id)
            if oracle is not None:
                oracle.share_changed(arguments[0], outcome.before, outcome.after)
        elif label == "transactions" and method == "move" and outcome.is_applied:
            self._moved(arguments[0])

    def _observe_push(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if method == "change_subscription":
            old, new = arguments
            oracle = self.oracles.get(new.subscription_id)
            if old is None:
                self.created(new)
            elif oracle is not None:
                oracle.altered(new)
        elif method == "delete_subscription":
            oracle = self.oracles.get(arguments[0].subscription_id)
            if oracle is not None:
                oracle.deleted()
        elif method in ("put_lane", "put_delivery") and outcome == arguments[1]:
            key, new = arguments
            if method == "put_lane":  # also of one that was deleted since the delivery has read it: it may go on
                oracle = self.oracles.get(key.subscription_id)
                if oracle is not None:
                    oracle.lane_put(key.lane, new)
            else:
                oracle = self._living(key.subscription_id)
                if oracle is not None:
                    oracle.place_put(key, new)

    def _moved(self, move: Move) -> None:
        log = self._simulation.oracle.log
        newest = [(key, entry) for key, refs in move.refs.items() for entry in log.appends[key][-len(refs) :]]
        for share in move.shares:
            oracle = self._living(share.key.share_group_id)
            if oracle is not None:
                oracle.share_moved(share.key, [each for _, entry in newest for each in self._letters(entry)])
        for delivery in move.deliveries:
            oracle = self._living(delivery.key.subscription_id)
            if oracle is None:
                continue
            target = oracle.subscription.target
            if isinstance(target, TopicTarget) and all(log.names[key.topic_id] == target.topic for key, _ in newest):
                oracle.copied(delivery.key, delivery.state, [value for _, entry in newest for value in entry.values])
            else:
                letters = [each for _, entry in newest for each in self._letters(entry)]
                oracle.place_put(delivery.key, delivery.state, letters)

    def _letters(self, entry: Any) -> Any:
        return dead_letters_of(self._simulation, entry)

    def _living(self, subscription_id: str) -> PushOracle | None:
        """The oracle, unless the subscription was deleted: then its places may go at any time."""
        oracle = self.oracles.get(SubscriptionId(subscription_id))
        return None if oracle is None or oracle.deleted_ms is not None else oracle
