"""Lets something happen before, or after, the nth storage call of a broker: others at work, or its death."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from penstock_broker.broker import Broker
from tests.broker.setting import Killed, another_instance


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
    """Parallel, one after the other, so that the nth storage call is the same each time."""

    def __init__(self, parallel: Any) -> None:
        self._parallel = parallel

    def map(self, function: Any, items: Any) -> Any:
        return [result for item in items for result in self._parallel.map(function, [item])]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parallel, name)


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
        cursors=wrap(broker.cursors),
        zones=[wrap(zone) for zone in broker.zones],
        archive=wrap(broker.archive),
        compaction=wrap(broker.compaction),
        parallel=InOrder(broker.parallel),
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
