"""A test that hangs fails, and its message says where each thread stood. It is the last resort: a test that waits for
another process or thread bounds its wait itself (deadlines.py, child_process.py).
"""

import gc
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

HANGS_AFTER_S = 300.0  # no phase of a test takes a fifth of it; pyproject's faulthandler ends the process later
LONG_HANGS_AFTER_S = 3_600.0  # of a test that is marked `minutes` or `chaos`
_AGAIN_AFTER_S = 20.0  # what runs at the end of the test may hang too


class HangingTestError(BaseException):
    """Not an Exception: code under test that survives any exception must not survive this one."""


@contextmanager
def failing_when_it_hangs(after_s: float) -> Iterator[None]:
    """Interrupt the block after `after_s`, and again every 20 s, with HangingTestError.

    A signal does it. It reaches the main thread alone, also in a system call that waits. In another thread, and on a
    system without that signal, the block is not watched.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: object) -> None:
        raise HangingTestError(f"it has not ended after {after_s:g} s; the threads stand at\n{_stacks()}")

    handler = signal.signal(signal.SIGALRM, interrupt)
    outer = signal.setitimer(signal.ITIMER_REAL, after_s, _AGAIN_AFTER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}" for number, frame in _frames().items()
    )


def _frames() -> Mapping[int, FrameType]:
    """The frames of all threads. No collection may begin meanwhile.

    The interpreter makes the mapping under a lock. A callback of the collector, such as Hypothesis has, would let
    another thread run, which may want that lock and then never lets this one go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_on:
            gc.enable()
