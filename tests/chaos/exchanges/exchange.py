"""One request and its answer, as operations of a history."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.http.http_message import Response
from penstock_core.errors import PenstockError
from tests.history.format import Acks, Function, MicroOp

_SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An operation that a request asks for."""

    function: Function
    ops: Sequence[MicroOp]
    acks: Acks | None = None
    group: str | None = None


Outcome = Sequence[MicroOp] | PenstockError


class Exchange(Protocol):
    """A request that the history knows. Its operations succeed or fail one by one."""

    @property
    def planned(self) -> Sequence[Planned]:
        """The operations, in the order of the request."""

    def outcomes(self, response: Response) -> Sequence[Outcome]:
        """The results of each operation, as an answer with status 200 tells them."""


def history_ns(wall_ms: int) -> int:
    """Return this time of the wall clock on the history's clock."""
    return max(0, wall_ms * 1_000_000 - _AHEAD_NS)


def _ahead_ns() -> int:
    """By how much the wall clock is ahead of the monotonic one: the closest pair of several."""
    pairs = []
    for _ in range(_SAMPLES):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after - before, wall - before))
    return min(pairs)[1]


_AHEAD_NS = _ahead_ns()
