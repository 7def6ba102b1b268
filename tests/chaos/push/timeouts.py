"""The emulator ends a function that runs for too long. Its log tells when, and the history must know."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.chaos.exchanges.exchange import history_ns
from tests.history.format import Disturb, Function
from tests.history.recorder import Recorder

_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) .*\bLambda (\S+) timed out after")
_LASTS_MS = 1_000  # the log's times are whole seconds


def tell_timeouts(log: Path, history: Path, function_names: tuple[str, ...]) -> int:
    """Write a history of the functions' timeouts, and return how many there were."""
    found = sorted(
        (history_ns(at_ms), name)
        for at_ms, name in _timeouts(log.read_text(errors="replace"))
        if name in function_names
    )
    times = iter([at_ns for at_ns, _ in found])
    with history.open("xb", buffering=0) as file:
        recorder = Recorder(file, now_ns=lambda: next(times))
        for _, name in found:
            recorder.done("emulator", Function.DISTURB, [Disturb(f"{name} timed out", _LASTS_MS)])
    return len(found)


def _timeouts(text: str) -> Iterator[tuple[int, str]]:
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").astimezone()  # of this machine
            yield int(at.timestamp() * 1_000), match[2]
