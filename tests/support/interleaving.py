"""Instances with an event at their nth storage call: another process acts, or the instance is killed, or it sleeps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcomes, outcome_of
from penstock_service.instance.instance import Instance
from tests.support.service import Killed, another_instance

A = TypeVar("A")
T = TypeVar("T")


class _Watched:
    """A port that calls a hook before and after each of its calls."""

    def __init__(self, port: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._port, self._before, self._after = port, before, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self._before()
            result = found(*arguments)
            self._after()
            return result

        return call


class InOrder:
    """An executor that runs calls in turn in the caller's thread, so the nth storage call is always the same.

    A race with hedge delays begins no further call once it has enough."""

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        return Outcomes.collect(function, items)

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        lanes: Sequence[str] = (),
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        results: list[T | PenstockError | None] = [None] * len(items)
        for index, item in enumerate(items):
            results[index] = outcome_of(function, item)
            if hedge_delays_ms and is_enough(results):
                break
        return results


def watched(
    instance: Instance, before: Callable[[int], None], after: Callable[[int], None] = lambda _: None
) -> Instance:
    """Another instance over the same stores, which calls the hooks with the number of each storage call, from 0."""
    numbers, ended = count(), count()

    def wrap(port: Any) -> Any:
        return _Watched(port, lambda: before(next(numbers)), lambda: after(next(ended)))

    return another_instance(
        instance,
        topics=wrap(instance.stores.topics),
        log=wrap(instance.stores.log),
        groups=wrap(instance.stores.groups),
        memberships=wrap(instance.stores.memberships),
        share=wrap(instance.stores.share),
        push=wrap(instance.stores.push),
        deliveries=wrap(instance.stores.deliveries),
        zone_states=wrap(instance.stores.zone_states),
        cursors=wrap(instance.stores.cursors),
        zones=[wrap(zone) for zone in instance.stores.zones],
        archive=wrap(instance.stores.archive),
        inline=wrap(instance.stores.inline),
        compaction=wrap(instance.stores.compaction),
        timers=wrap(instance.stores.timers),
        transactions=wrap(instance.stores.transactions),
        quotas=wrap(instance.stores.quotas),
        timer_triggers=wrap(instance.stores.timer_triggers),
        executor=InOrder(),
    )


def interrupted_before(instance: Instance, place: int, act: Callable[[], object]) -> Instance:
    """An instance before whose storage call number `place` another process acts."""

    def before(number: int) -> None:
        if number == place:
            act()

    return watched(instance, before)


def killed_at(instance: Instance, place: int, *, is_applied: bool) -> Instance:
    """An instance that is killed at its storage call number `place`, before or after that has its effect."""

    def die(number: int) -> None:
        if number == place:
            raise Killed

    return watched(instance, lambda _: None, die) if is_applied else watched(instance, die)


def asleep_after(instance: Instance, place: int, meanwhile: Callable[[], object]) -> Instance:
    """An instance that sleeps after its storage call number `place`, as a laptop may: others act, and time goes by."""

    def sleep(number: int) -> None:
        if number == place:
            meanwhile()

    return watched(instance, lambda _: None, sleep)


@contextmanager
def catch_kill() -> Iterator[list[bool]]:
    """Catches the kill of an instance inside; the list is empty if there was none."""
    was_killed: list[bool] = []
    try:
        yield was_killed
    except Killed:
        was_killed.append(True)
