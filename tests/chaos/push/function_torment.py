"""Deliveries and targets under torment: their processes are killed and frozen, and targets are down or slow at times.

The emulator runs each function in processes of this machine. Other stacks may run meanwhile, with functions of the same
names, so a process counts only if its environment names this stack.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.push.recording_target import DOWN, SLOW, control
from tests.history.format import Disturb, Function
from tests.history.recorder import Recorder

_STOPPED = "T"
KILLED, FROZEN, ILL = "killed", "frozen", "made ill for a while"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTorment:
    """The victims, and how often they are struck. `victims` has the subscription of each function, None for all.

    A process is spared for its first `spared_s`: if one dies while it starts, the emulator ends all that start with it.
    `targets` are subscriptions whose targets are made ill through the control file, all of them at once.
    """

    endpoint_url: str
    victims: Mapping[str, str | None]
    targets: tuple[str, ...]
    control: Path
    each_s: tuple[float, float] = (3.0, 8.0)
    stands_s: tuple[float, float] = (2.0, 6.0)
    freeze_share: float = 0.4
    spared_s: float = 10.0
    ill_each_s: tuple[float, float] = (8.0, 16.0)
    ill_s: tuple[float, float] = (3.0, 8.0)


@contextmanager
def tormenting_functions(torment: FunctionTorment, seed: int, recorder: Recorder) -> Iterator[Counter[str]]:
    """Torment meanwhile. In the end the counter holds what was done to whom."""
    stop = threading.Event()
    done: Counter[str] = Counter()
    bodies = [(_strike, f"{seed}.functions"), (_make_ill, f"{seed}.ill")]
    threads = [
        threading.Thread(target=body, args=(torment, Random(chance), stop, done, recorder)) for body, chance in bodies
    ]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        control(torment.control, {})


def processes_of(function_name: str, endpoint_url: str) -> list[int]:
    """The processes that run the function now, in the emulator at this address."""
    wanted = {f"AWS_LAMBDA_FUNCTION_NAME={function_name}".encode(), f"AWS_ENDPOINT_URL={endpoint_url}".encode()}
    return sorted(pid for pid, variables in _environments() if wanted <= variables)


def _strike(
    torment: FunctionTorment, chance: Random, stop: threading.Event, done: Counter[str], recorder: Recorder
) -> None:
    while not stop.wait(chance.uniform(*torment.each_s)):
        name = chance.choice([*torment.victims])
        pids = [each for each in processes_of(name, torment.endpoint_url) if _is_at_work(each, torment.spared_s)]
        if not pids:
            continue
        pid, freezes = chance.choice(pids), chance.random() < torment.freeze_share
        with disturbing(recorder, f"{name} {FROZEN if freezes else KILLED}", torment.victims[name]):
            if freezes:
                _freeze(pid, chance.uniform(*torment.stands_s))
            else:
                _send(pid, signal.SIGKILL)
        done[f"{name} {FROZEN if freezes else KILLED}"] += 1


def _make_ill(
    torment: FunctionTorment, chance: Random, stop: threading.Event, done: Counter[str], _recorder: Recorder
) -> None:
    while not stop.wait(chance.uniform(*torment.ill_each_s)):
        state = chance.choice([DOWN, DOWN, SLOW])
        control(torment.control, dict.fromkeys(torment.targets, state))
        done[f"targets {ILL}: {state}"] += 1
        stop.wait(chance.uniform(*torment.ill_s))
        control(torment.control, {})


@contextmanager
def disturbing(recorder: Recorder, why: str, subscription: str | None) -> Iterator[None]:
    """Tell the history that answers of the subscription's target, or of all targets, may be lost meanwhile."""
    operation = recorder.invoke("injector", Function.DISTURB, [Disturb(why)], group=subscription)
    try:
        yield
    finally:
        recorder.ok(operation)


def _is_at_work(pid: int, spared_s: float) -> bool:
    """Whether the process is old enough, and does not stand still between two events as the rules of AWS have it."""
    try:
        age_s = time.time() - Path(f"/proc/{pid}").stat().st_ctime
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return False
    return age_s >= spared_s and state != _STOPPED


def _freeze(pid: int, for_s: float) -> None:
    _send(pid, signal.SIGSTOP)
    try:
        time.sleep(for_s)
    finally:
        _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, number)


def _environments() -> Iterator[tuple[int, set[bytes]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), {*(folder / "environ").read_bytes().split(b"\0")}
        except OSError:  # the process has ended, or it is another user's
            continue
