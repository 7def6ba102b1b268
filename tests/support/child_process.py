"""Processes that tests start: none outlives its test, and a read of its output ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.deadlines import DEADLINE_S


def bare_environment() -> dict[str, str]:
    """No variable but the path of this process's modules: no AWS configuration, no stack, no program to start."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": ""}


@contextmanager
def child_process(
    command: Sequence[str], *, deadline_s: float = DEADLINE_S, **options: Any
) -> Iterator["subprocess.Popen[Any]"]:
    """Start a process. Kill it and its children at the end of the block, or once `deadline_s` have gone by.

    After the deadline every pipe to it ends, so that nothing that reads from it waits for ever, and the block fails.
    """
    is_overdue = threading.Event()
    with subprocess.Popen(command, start_new_session=True, **options) as process:

        def end_overdue() -> None:
            is_overdue.set()
            _kill(process)

        timer = threading.Timer(deadline_s, end_overdue)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            _kill(process)
            assert not is_overdue.is_set(), f"{command[-1][-200:]} had not ended after {deadline_s:g} s"


def _kill(process: "subprocess.Popen[Any]") -> None:
    if process.returncode is None:  # not reaped: the number is still its own
        os.killpg(process.pid, signal.SIGKILL)
