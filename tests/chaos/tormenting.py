"""Worker processes under torment: each is killed, or stands still for longer than its locks, again and again."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import SpawnProcess
from random import Random

_END_S_MAX = 60.0
KILLED, FROZEN, ENDED = "workers killed", "workers frozen past their locks", "workers ended by themselves"

Start = Callable[[str, int], SpawnProcess]
Around = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Torment:
    """How long a process is left alone before it is frozen or killed, and how long it stands still."""

    life_s: tuple[float, float] = (12.0, 40.0)
    stands_s: tuple[float, float] = (4.0, 8.0)  # longer than a lock of 3 s
    freeze_share: float = 0.4


_USUAL = Torment()


@contextmanager
def tormenting(
    slots: Sequence[str],
    seed: int,
    start: Start,
    ask_to_end: Callable[[], None],
    torment: Torment = _USUAL,
    around: Around = lambda _slot: nullcontext(),
) -> Iterator[Counter[str]]:
    """Keep one process for each slot meanwhile. `start(slot, life)` makes it; `ask_to_end` asks all to end.

    `around(slot)` is entered for as long as its process is killed or stands still.

    In the end the counter holds what was done to them. A process that ends with an error is a defect.
    """
    stop = threading.Event()
    done: Counter[str] = Counter()
    threads = [
        threading.Thread(
            target=_keep,
            args=(_Slot(partial(start, slot), partial(around, slot), torment), Random(f"{seed}.{slot}"), stop, done),
        )
        for slot in slots
    ]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        ask_to_end()
        for thread in threads:
            thread.join()


@dataclass(frozen=True, slots=True)
class _Slot:
    """One slot: how its processes are made, what is entered around a blow, and the torment."""

    start: Callable[[int], SpawnProcess]
    around: Callable[[], AbstractContextManager[None]]
    torment: Torment


def _keep(slot: _Slot, chance: Random, stop: threading.Event, done: Counter[str]) -> None:
    life, torment = 0, slot.torment
    while not stop.is_set():
        process = slot.start(life)
        life += 1
        process.start()
        while _lives(process, stop, chance.uniform(*torment.life_s)) and chance.random() < torment.freeze_share:
            with slot.around():
                _stand_still(process, chance.uniform(*torment.stands_s))
            done[FROZEN] += 1
        if stop.is_set():
            process.join(_END_S_MAX)
        elif process.is_alive():
            done[KILLED] += 1
        if process.is_alive():
            with slot.around():
                process.kill()
                done["workers that did not end when asked"] += stop.is_set()
                process.join()
        elif process.exitcode:
            done[ENDED] += 1


def _lives(process: SpawnProcess, stop: threading.Event, for_s: float) -> bool:
    """Wait so long. Return whether the process still lives, and may go on."""
    ends_at = time.monotonic() + for_s
    while time.monotonic() < ends_at and process.is_alive() and not stop.wait(0.1):
        continue
    return process.is_alive() and not stop.is_set()


def _stand_still(process: SpawnProcess, for_s: float) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(for_s)
    finally:
        os.kill(process.pid, signal.SIGCONT)
