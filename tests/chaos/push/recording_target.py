"""A target of a subscription, which tells the history what it got and what it handled.

Functions and endpoints have one. It cannot handle poison: of some it names the record, for some it fails as a whole. It
names some good records once. While the control file names its subscription, it is down or slow.

It imports nothing but this repository's history and the standard library, because a function's package has no more.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from zlib import crc32

from tests.chaos.clients.values import name_of
from tests.history.format import Function, Handling, TopicPartition
from tests.history.recorder import Recorder

CONTROL = "targets.json"
DOWN, SLOW = "down", "slow"
_POISON_ONE_IN = 25
_NAMED_ONE_IN = 20
_WORK_S = 0.2
_SLOW_S = 4.0

Place = tuple[TopicPartition, int]


class TargetFailedError(Exception):
    """The target fails as a whole, and has handled nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRecord:
    """One record as a target got it."""

    place: Place
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingTarget:
    """The target of one subscription in one process. In ordered mode it stops at the first record that it names."""

    recorder: Recorder
    process: str
    subscription: str
    is_ordered: bool
    control: Path
    chance: Random = field(default_factory=Random)

    def handle(self, records: Sequence[GivenRecord]) -> list[Place]:
        """Handle the records, and return the places of those that the answer must name.

        Raises TargetFailedError if it has handled none.
        """
        operation = self.recorder.invoke(
            self.process, Function.HANDLE, _handlings(records, refused=()), group=self.subscription
        )
        try:
            refused = self._work(records)
        except TargetFailedError:
            self.recorder.fail(operation)
            raise
        self.recorder.ok(operation, _handlings(records, refused))
        return refused

    def _work(self, records: Sequence[GivenRecord]) -> list[Place]:
        state = _states(self.control).get(self.subscription)
        if state == DOWN:
            raise TargetFailedError("the target is down")
        time.sleep(_SLOW_S if state == SLOW else self.chance.uniform(0, _WORK_S))
        if any(_kills_batch(name_of(each.value)) for each in records):
            raise TargetFailedError("a record that this target cannot handle")
        refused: list[Place] = []
        for each in records:
            if (refused and self.is_ordered) or self._names(name_of(each.value)):
                refused.append(each.place)
        return refused

    def _names(self, name: str) -> bool:
        """Whether the answer names the record: poison each time, some other ones the first time.

        A file tells all processes of the target that it was named.
        """
        if is_poison(name) or crc32(name.encode()) % _NAMED_ONE_IN != 1:
            return is_poison(name)
        try:
            (self.control.parent / f"named.{self.subscription}.{name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def is_poison(name: str) -> bool:
    """Return whether no target can handle the record."""
    return crc32(name.encode()) % _POISON_ONE_IN == 0


def control(path: Path, states: dict[str, str]) -> None:
    """Let the targets of these subscriptions be in that state from now on, and all others well."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(states))
    beside.replace(path)


def _states(path: Path) -> dict[str, str]:
    states: dict[str, str] = json.loads(path.read_text())
    return states


def _kills_batch(name: str) -> bool:
    return is_poison(name) and crc32(name.encode()) // _POISON_ONE_IN % 2 == 0


def _handlings(records: Sequence[GivenRecord], refused: Iterable[Place]) -> list[Handling]:
    """What was handled of each partition, in the order of the records."""
    unhandled = {*refused}
    found: dict[TopicPartition, tuple[list[tuple[int, str]], list[int]]] = {}
    for each in records:
        where, offset = each.place
        handled, named = found.setdefault(where, ([], []))
        if each.place in unhandled:
            named.append(offset)
        else:
            handled.append((offset, name_of(each.value)))
    return [Handling(where, tuple(handled), tuple(named)) for where, (handled, named) in found.items()]
