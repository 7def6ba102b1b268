"""INT and TERM as the ordinary way to end a program: it finishes what it has in hand."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at INT or TERM. A second INT interrupts the program where it is, and a second TERM kills it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop()

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def async_stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at INT or TERM, where the running loop can hear them. A second signal does as before."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []

    def heard(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        handled.remove(number)
        stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, ValueError, RuntimeError):  # another loop, or another system
                loop.add_signal_handler(number, heard, number)
                handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
