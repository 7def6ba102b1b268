"""Waiting in tests: poll a condition with a deadline, and never sleep for a guessed time."""

import time
from collections.abc import Callable

DEADLINE_S = 60.0  # for a thing that must happen: a test waits this long only if it is broken
PAUSE_S = 0.05


def until(
    holds: Callable[[], object],
    *,
    step: Callable[[], object] = lambda: time.sleep(PAUSE_S),
    shown: Callable[[], object] = lambda: "",
    deadline_s: float = DEADLINE_S,
) -> None:
    """Call `step` (by default a pause of `PAUSE_S`) again and again until `holds()` is true.

    Fails the test after `deadline_s`, with `shown()` as the message.
    """
    ends_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < ends_s, f"not so after {deadline_s} s: {shown()}"
        step()
