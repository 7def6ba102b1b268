"""Lets something happen before, or after, the nth storage call of a broker: others at work, or its death."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from penstock_broker.broker import Broker
from penstock_core.errors import PenstockError
from tests.broker.setting import Killed, another_instance

A = TypeVar("A")
T = TypeVar("T")


class _Watched:
    """A port whose calls are told before and after."""

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
    """Parallel, one after the other in the caller's thread, so that the nth storage call is the same each time. A race
    that is patient begins nothing more once it has enough."""

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> list[T | PenstockError]:
        return [_outcome(function, item) for item in items]

    def race(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        places: Sequence[str] = (),
        patience_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        results: list[T | PenstockError | None] = [None] * len(items)
        for index, item in enumerate(items):
            results[index] = _outcome(function, item)
            if patience_ms and is_enough(results):
                break
        return results


def _outcome(function: Callable[[A], T], item: A) -> T | PenstockError:
    try:
        return function(item)
    except PenstockError as error:
        return error


def watched(broker: Broker, before: Callable[[int], None], after: Callable[[int], None] = lambda _: None) -> Broker:
    """Another instance over the same stores that tells of its storage calls, numbered from 0."""
    numbers, ended = count(), count()

    def wrap(port: Any) -> Any:
        return _Watched(port, lambda: before(next(numbers)), lambda: after(next(ended)))

    instance = another_instance(
        broker,
        topics=(topics := wrap(broker.topics)),
        log=wrap(broker.log),
        groups=wrap(broker.groups),
        memberships=wrap(broker.memberships),
        zone_states=wrap(broker.zone_states),
        cursors=wrap(broker.cursors),
        zones=[wrap(zone) for zone in broker.zones],
        archive=wrap(broker.archive),
        compaction=wrap(broker.compaction),
        parallel=InOrder(),
    )
    return replace(instance, directory=another_instance(replace(broker, topics=topics)).directory)


def that_meets(broker: Broker, place: int, act: Callable[[], object]) -> Broker:
    """An instance before whose storage call number `place` something happens."""

    def before(number: int) -> None:
        if number == place:
            act()

    return watched(broker, before)


def that_dies(broker: Broker, place: int, *, is_applied: bool) -> Broker:
    """An instance that is killed at its storage call number `place`, before or after that has its effect."""

    def die(number: int) -> None:
        if number == place:
            raise Killed

    return watched(broker, lambda _: None, die) if is_applied else watched(broker, die)


@contextmanager
def dying() -> Iterator[list[bool]]:
    """Tells in its list whether what is inside was killed."""
    was_killed: list[bool] = []
    try:
        yield was_killed
    except Killed:
        was_killed.append(True)
