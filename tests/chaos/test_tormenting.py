"""Workers are killed and frozen again and again, end when they are asked, and are missed when they die."""

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from tests.chaos.clients.stop_file import StopFile
from tests.chaos.tormenting import ENDED, FROZEN, KILLED, Torment, tormenting
from tests.support.deadlines import until

_SPAWN = multiprocessing.get_context("spawn")
_AT_ONCE = Torment(life_s=(0.0, 0.05), stands_s=(0.0, 0.05), freeze_share=0.5)
_NEVER = Torment(life_s=(600.0, 600.0))


def work(stop: StopFile) -> None:
    while not stop.wait(0.1):
        continue


def test_workers_are_frozen_and_killed_and_started_again(tmp_path: Path) -> None:
    stop = StopFile(tmp_path / "stop")
    lives: list[int] = []

    def start(_slot: str, life: int) -> SpawnProcess:
        lives.append(life)
        return _SPAWN.Process(target=work, args=(stop,))

    with tormenting(("a",), 1, start, stop.set, _AT_ONCE) as done:
        until(lambda: done[KILLED] > 1 and done[FROZEN] > 1 and len(lives) > 2)
    assert lives == list(range(len(lives)))
    assert not done[ENDED]


def test_worker_ends_when_it_is_asked(tmp_path: Path) -> None:
    stop = StopFile(tmp_path / "stop")
    with tormenting(("a", "b"), 1, lambda *_: _SPAWN.Process(target=work, args=(stop,)), stop.set, _NEVER) as done:
        pass
    assert not any(done.values())


@pytest.mark.parametrize("code", [1, 3])
def test_worker_that_dies_is_counted(tmp_path: Path, code: int) -> None:
    stop = StopFile(tmp_path / "stop")
    with tormenting(("a",), 1, lambda *_: _SPAWN.Process(target=sys.exit, args=(code,)), stop.set, _NEVER) as done:
        until(lambda: done[ENDED] > 0)


def test_blow_is_struck_within_what_goes_around_it(tmp_path: Path) -> None:
    stop, entered = StopFile(tmp_path / "stop"), list[str]()

    @contextmanager
    def around(slot: str) -> Iterator[None]:
        entered.append(slot)
        yield

    def start(_slot: str, _life: int) -> SpawnProcess:
        return _SPAWN.Process(target=work, args=(stop,))

    with tormenting(("a",), 1, start, stop.set, _AT_ONCE, around) as done:
        until(lambda: done[KILLED] > 0 and done[FROZEN] > 0)
    assert len(entered) == done[KILLED] + done[FROZEN]
    assert {*entered} == {"a"}
