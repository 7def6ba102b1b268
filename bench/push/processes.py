"""The processes in which the emulator runs functions, by the functions' names."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NAME = b"AWS_LAMBDA_FUNCTION_NAME="


def pids_of(function_name: str) -> list[int]:
    """The processes that run the function now."""
    wanted = _NAME + function_name.encode()
    return [pid for pid, environment in _environments() if wanted in environment.split(b"\0")]


def kill_one(function_name: str, chance: random.Random) -> bool:
    """Send SIGKILL to one of the function's processes. False if there is none."""
    pids = sorted(pids_of(function_name))
    if not pids:
        return False
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(chance.choice(pids), signal.SIGKILL)
    return True


def _environments() -> Iterator[tuple[int, bytes]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), (folder / "environ").read_bytes()
        except OSError:  # the process has ended, or it is another user's
            continue
