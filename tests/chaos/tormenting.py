"""Worker processes under torment: each is killed, or stands still for longer than its locks, again and again."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from random import Random

_LIFE_S = (10.0, 25.0)
_STANDS_S = (4.0, 8.0)  # longer than a lock of 3 s
_FREEZE_SHARE = 0.4
_END_S_MAX = 60.0
KILLED, FROZEN, ENDED = "workers killed", "workers frozen past their locks", "workers ended by themselves"

Start = Callable[[str, int], SpawnProcess]


@contextmanager
def tormenting(slots: Sequence[str], seed: int, start: Start, ask_to_end: Callable[[], None]) -> Iterator[Counter[str]]:
    """Keep one process for each slot meanwhile. `start(slot, life)` makes it; `ask_to_end` asks all to end.

    In the end the counter holds what was done to them. A process that ends with an error is a defect.
    """
    stop = threading.Event()
    done: Counter[str] = Counter()
    threads = [
        threading.Thread(target=_keep, args=(slot, Random(f"{seed}.{slot}"), stop, start, done)) for slot in slots
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


def _keep(slot: str, chance: Random, stop: threading.Event, start: Start, done: Counter[str]) -> None:
    life = 0
    while not stop.is_set():
        process = start(slot, life)
        life += 1
        process.start()
        while _lives(process, stop, chance.uniform(*_LIFE_S)) and chance.random() < _FREEZE_SHARE:
            _stand_still(process, chance.uniform(*_STANDS_S))
            done[FROZEN] += 1
        if stop.is_set():
            process.join(_END_S_MAX)
        elif process.is_alive():
            done[KILLED] += 1
        if process.is_alive():
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
