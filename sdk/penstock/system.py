"""The machine's clocks and randomness. The rest of the SDK takes times and chances as arguments."""

import os
import random
import secrets
import socket
import threading
import time
from typing import NamedTuple

NS_PER_MS = 1_000_000

# Nanoseconds since 1970, for the times of records and spans: the clock itself, without a call around it.
wall_clock_ns = time.time_ns

_forks = 0  # how often this process, or one that it was forked from, was the child of a fork


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def fork_count() -> int:
    """A number that a child by `os.fork()` has not in common with its parent."""
    return _forks


class ProcessLock:
    """A lock of this process: a child by `os.fork()` never finds it locked by a thread that it does not have."""

    def __init__(self) -> None:
        self._lock, self._forks = threading.Lock(), _forks

    def __enter__(self) -> None:
        if self._forks != _forks:
            self._lock, self._forks = threading.Lock(), _forks
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Instant(NamedTuple):
    """A moment by both clocks. A step moves the wall clock, and a freeze stops the monotonic one."""

    wall_ms: int
    monotonic_ms: int

    def age_ms(self, now: "Instant") -> int:
        """The milliseconds from here to `now`, by the clock that shows more."""
        return max(now.wall_ms - self.wall_ms, now.monotonic_ms - self.monotonic_ms)


def instant() -> Instant:
    """This moment."""
    return Instant(wall_clock_ms(), monotonic_ms())


def monotonic_ms() -> int:
    """A clock that never goes back, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_fraction() -> float:
    """Uniform in [0, 1), for jitter."""
    return random.random()  # noqa: S311 - not a secret


def choose(count: int) -> int:
    """One of `count`, from 0, by the system's randomness.

    It chooses the ids of producers. Two processes that were forked from one, or that seed `random`, must not choose the
    same.
    """
    return secrets.randbelow(count)


def new_member_id() -> str:
    """An id that no other process has."""
    return secrets.token_hex(16)


def new_nonce() -> str:
    """Sixteen random bytes in hexadecimal, which no other process draws."""
    return secrets.token_hex(16)


def random_bytes(count: int) -> bytes:
    """Random bytes that no other process draws."""
    return secrets.token_bytes(count)


def process_name() -> str:
    """The host and the process id, by which operators know this process."""
    return f"{socket.gethostname()}-{os.getpid()}"
