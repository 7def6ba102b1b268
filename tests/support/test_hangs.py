"""What a test waits for in vain ends, and says where it hung."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.child_process import child_process
from tests.support.hangs import HangingTestError, failing_when_it_hangs

WAITS_FOR_EVER = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(3_600)"]


def _a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _a_pipe() -> None:
    reader, writer = os.pipe()
    try:
        os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)


def _a_thread() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        thread.join()
    finally:
        is_over.set()
        thread.join()


def _a_callback_that_survives_any_exception() -> None:
    while True:
        with suppress(Exception):
            threading.Event().wait()


def _within_another_watch() -> None:
    with failing_when_it_hangs(3_600.0):
        pass
    threading.Event().wait()


def _output_of_a_child() -> None:
    with child_process(WAITS_FOR_EVER, deadline_s=0.5, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()


@pytest.mark.parametrize(
    "waits", [_a_lock, _a_pipe, _a_thread, _a_callback_that_survives_any_exception, _within_another_watch]
)
def test_wait_that_does_not_end_fails_and_shows_its_stack(waits: Callable[[], None]) -> None:
    with pytest.raises(HangingTestError, match=rf"after 0.01 s(.|\n)*{waits.__name__}"), failing_when_it_hangs(0.01):
        waits()


def test_every_phase_of_a_test_is_watched(request: pytest.FixtureRequest) -> None:
    remaining_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < remaining_s <= 300


def test_read_of_a_child_ends_at_its_deadline_and_the_test_fails() -> None:
    with pytest.raises(AssertionError, match=r"had not ended after 0.5 s"):
        _output_of_a_child()


def test_child_ends_with_its_test() -> None:
    began_s = time.monotonic()
    with child_process(WAITS_FOR_EVER, stdout=subprocess.PIPE) as process:
        pass
    assert process.returncode == -signal.SIGKILL
    assert time.monotonic() - began_s < 60
