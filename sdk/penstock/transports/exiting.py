"""An executor that still works while the interpreter exits, when Python starts no more threads of a pool.

A producer that is open at the exit delivers what it has then. Python ends the pools before that, and a pool that has
ended takes no call. So this module is told a moment earlier, by the hook that the pools themselves are told by.
"""

import concurrent.futures.thread  # noqa: F401 - registers its hook first
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcomes
from penstock_service.ports.runtime import Executor

A = TypeVar("A")
T = TypeVar("T")

_exiting = threading.Event()
# Hooks run from the last one to the first. `concurrent.futures` has registered its own when it was imported.
threading._register_atexit(_exiting.set)  # type: ignore[attr-defined]  # of CPython, 3.9 and later


class ExitingExecutor:
    """An Executor: `side_by_side` until the interpreter exits, then `one_by_one`."""

    def __init__(self, side_by_side: Executor, one_by_one: Executor) -> None:
        self._side_by_side = side_by_side
        self._one_by_one = one_by_one

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        """As Executor says."""
        return self._current().map(function, items)

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        lanes: Sequence[str] = (),
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        """As Executor says."""
        return self._current().first_of(
            function,
            items,
            is_enough,
            grace_ms,
            timeout_ms=timeout_ms,
            lanes=lanes,
            hedge_delays_ms=hedge_delays_ms,
        )

    def _current(self) -> Executor:
        return self._one_by_one if _exiting.is_set() else self._side_by_side
