"""The machine's clocks and chance: the rest of the SDK takes times and chances as arguments."""

import os
import random
import secrets
import socket
import time


def monotonic_ms() -> int:
    """A clock that never goes back, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def chance() -> float:
    """Uniform in [0, 1), for jitter."""
    return random.random()  # noqa: S311 - not a secret


def choose(count: int) -> int:
    """One of `count`, from 0. Of the system's randomness: a producer's id is chosen by it, and two processes that were
    forked from one, or that seed `random`, must not choose the same."""
    return secrets.randbelow(count)


def new_member_id() -> str:
    """One that no other process has."""
    return secrets.token_hex(16)


def process_name() -> str:
    """What operators know this process by."""
    return f"{socket.gethostname()}-{os.getpid()}"
