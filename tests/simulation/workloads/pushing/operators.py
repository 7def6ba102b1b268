"""Operators pause a subscription, resume it, alter it, and delete it to make it anew under its name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.push.subscription import EARLIEST, LATEST, ORDERED, PARALLEL
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import delete_subscription, pause_subscription, resume_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from tests.simulation.oracle.violation import expect
from tests.simulation.workloads.pushing.subscribed import Kind, SubscribedName, draw_settings

_TRIES_MAX = 100
_OTHER = {ORDERED: PARALLEL, PARALLEL: ORDERED, EARLIEST: LATEST, LATEST: EARLIEST}


class PushOperator:
    """Changes one name's subscription now and then. Each call is repeated until it succeeds."""

    def __init__(self, subscribed: SubscribedName) -> None:
        self._subscribed = subscribed
        self._simulation = subscribed.simulation

    def run(self, lasts_ms: float) -> None:
        """Pause and resume, or alter the settings, during the time."""
        random, scheduler = self._simulation.scheduler.random, self._simulation.scheduler
        is_overtaking = self._subscribed.kind is Kind.OVERTAKING
        for _ in range(12 if is_overtaking else random.choice([1, 3, 5])):
            scheduler.pause(random.uniform(0.0, 10_000.0 if is_overtaking else 0.3 * lasts_ms))
            chance = random.random()
            if chance < (0.1 if is_overtaking else 0.4):
                self._change("pause", lambda instance: pause_subscription(instance, self._subscribed.name))
                scheduler.pause(random.uniform(0.0, 10_000.0))
                self._change("resume", lambda instance: resume_subscription(instance, self._subscribed.name))
            elif chance < 0.9:
                changes = {"concurrency": random.choice([1, 2, 3, 10]), "batch_records": random.choice([1, 3, 10])}
                self._change("alter", partial(self._alter, changes))
            else:
                self._alter_what_is_fixed(random.choice(["mode", "start"]))

    def recreate(self, lasts_ms: float) -> None:
        """Delete the subscription in mid-delivery, and make it anew with other settings."""
        random, scheduler, subscribed = self._simulation.scheduler.random, self._simulation.scheduler, self._subscribed
        for _ in range(random.choice([1, 2])):
            scheduler.pause(random.uniform(0.0, 0.5 * lasts_ms))
            if not self._change("delete", lambda instance: delete_subscription(instance, subscribed.name)):
                return
            scheduler.pause(random.choice([0.0, 1_000.0, 30_000.0, 70_000.0]))
            subscribed.begin(draw_settings(random, subscribed.kind, subscribed.dead_topic, is_copy=subscribed.is_copy))
            self._change("recreate", subscribed.put)

    def _alter(self, changes: Mapping[str, Any], instance: Instance) -> None:
        put_subscription(instance, self._subscribed.name, SubscriptionWish(settings=changes))

    def _alter_what_is_fixed(self, name: str) -> None:
        """Mode and start are those of the creation for ever."""
        other = _OTHER[self._subscribed.settings[name]]
        try:
            self._simulation.call(partial(self._alter, {name: other}), is_read=False)
        except PenstockError as error:
            self._simulation.count(f"push {name} {error.code.name}")
        else:
            expect(False, f"{self._subscribed.name} was altered to {name}={other}")

    def _change(self, what: str, call: Callable[[Instance], object]) -> bool:
        for _ in range(_TRIES_MAX):
            try:
                self._simulation.call(call, is_read=False)
            except PenstockError as error:
                if error.code.category is Category.NOT_FOUND and error.code is ErrorCode.UNKNOWN_SUBSCRIPTION:
                    return what == "delete"  # an earlier try has deleted it, or another operator
                self._simulation.scheduler.pause(100.0)
            else:
                self._simulation.count(f"push {what}")
                return True
        return False
