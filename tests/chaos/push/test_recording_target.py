"""A target tells the history what it was given, what it has handled, and what its answer names."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from tests.chaos.push.recording_target import (
    CONTROL,
    DOWN,
    GivenRecord,
    RecordingTarget,
    TargetFailedError,
    control,
    is_poison,
)
from tests.history.format import Handling
from tests.history.model.operations import Operation, read_operations
from tests.history.recorder import Recorder

WHERE = ("pushed", 1)


def named(is_wanted: Callable[[int], bool]) -> str:
    """The first name whose checksum is wanted."""
    return next(name for name in (f"push-{number}" for number in count()) if is_wanted(crc32(name.encode())))


GOOD = [name for name in (f"good-{number}" for number in range(99)) if crc32(name.encode()) % 20 != 1][:3]
FATAL = named(lambda crc: crc % 25 == 0 and crc // 25 % 2 == 0)
NAMED_POISON = named(lambda crc: crc % 25 == 0 and crc // 25 % 2 == 1)
NAMED_ONCE = named(lambda crc: crc % 25 != 0 and crc % 20 == 1)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A target, and its history."""

    target: RecordingTarget
    stream: io.BytesIO

    def handle(self, *names: str) -> list[int]:
        """The offsets that the answer names."""
        records = [GivenRecord(place=(WHERE, offset), value=name.encode()) for offset, name in enumerate(names)]
        return [offset for _, offset in self.target.handle(records)]

    def operations(self) -> list[Operation]:
        return [*read_operations(self.stream.getvalue().splitlines())]


def recorded(folder: Path, *, is_ordered: bool = True) -> Recorded:
    control(folder / CONTROL, {})
    stream = io.BytesIO()
    target = RecordingTarget(
        recorder=Recorder(stream),
        process="p",
        subscription="in-order",
        is_ordered=is_ordered,
        control=folder / CONTROL,
        chance=NoWork(),
    )
    return Recorded(target, stream)


class NoWork(Random):
    """Draws no time to work."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def test_target_tells_what_it_has_handled(tmp_path: Path) -> None:
    it = recorded(tmp_path)
    assert it.handle(*GOOD) == []
    [operation] = it.operations()
    assert (operation.group, operation.function, operation.outcome) == ("in-order", "handle", "ok")
    assert operation.ops == (Handling(WHERE, tuple(enumerate(GOOD))),)


def test_ordered_target_stops_at_the_first_record_that_it_names(tmp_path: Path) -> None:
    it = recorded(tmp_path)
    assert it.handle(GOOD[0], NAMED_POISON, GOOD[1]) == [1, 2]
    assert it.operations()[0].ops == (Handling(WHERE, ((0, GOOD[0]),), (1, 2)),)


def test_parallel_target_names_only_what_it_cannot_handle(tmp_path: Path) -> None:
    it = recorded(tmp_path, is_ordered=False)
    assert it.handle(GOOD[0], NAMED_POISON, GOOD[1]) == [1]
    assert it.operations()[0].ops == (Handling(WHERE, ((0, GOOD[0]), (2, GOOD[1])), (1,)),)


def test_good_record_is_named_once_and_poison_each_time(tmp_path: Path) -> None:
    it = recorded(tmp_path)
    assert it.handle(NAMED_ONCE) == [0]
    assert recorded(tmp_path).handle(NAMED_ONCE) == []  # another process of the target
    assert [it.handle(NAMED_POISON) for _ in range(3)] == [[0], [0], [0]]
    assert is_poison(NAMED_POISON)
    assert is_poison(FATAL)
    assert not is_poison(NAMED_ONCE)


def test_target_that_fails_as_a_whole_has_handled_nothing(tmp_path: Path) -> None:
    it = recorded(tmp_path)
    with pytest.raises(TargetFailedError, match="record"):
        it.handle(GOOD[0], FATAL)
    control(tmp_path / CONTROL, {"in-order": DOWN, "other": DOWN})
    with pytest.raises(TargetFailedError, match="down"):
        it.handle(GOOD[0])
    control(tmp_path / CONTROL, {"other": DOWN})
    assert it.handle(GOOD[0]) == []
    assert [each.outcome for each in it.operations()] == ["fail", "fail", "ok"]
