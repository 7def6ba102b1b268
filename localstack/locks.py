"""Locks on files. The kernel releases a lock when its holder ends, even by SIGKILL."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock during the block. Waits until it is free."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Opens the lock file. You can lock the descriptor, close it, or pass it to a child process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, *, within_s: float = 0.0) -> bool:
    """Takes the lock. False if another process holds it for longer than `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def is_locked(path: Path) -> bool:
    """True if a process holds the lock. If none does, this call holds it for an instant."""
    if not path.exists():
        return False
    descriptor = open_lock(path)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
