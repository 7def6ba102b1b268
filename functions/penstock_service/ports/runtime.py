"""The ports of the runtime: clock, entropy, executor, and cursors of scheduled jobs.

`penstock_service.ports` says what all methods raise. An executor raises defects, too.

The port to CloudFormation, for the function that makes what a template declares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcomes

A = TypeVar("A")
T = TypeVar("T")


class JobCursors(Protocol):
    """The places from which scheduled jobs go on that ran out of time. A lost or old cursor costs work, never more."""

    def get(self, job: str) -> str | None:
        """The job's cursor, or None if the job begins anew. One read."""

    def put(self, job: str, cursor: str) -> None:
        """Stores the job's cursor. One put."""

    def clear(self, job: str) -> None:
        """Removes the job's cursor, so that the job begins anew. One delete."""


class Executor(Protocol):
    """Calls a function for many items side by side.

    A PenstockError is the result of its item. Any other exception is a defect, and the executor raises it.
    """

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        """The results of all items, in their order."""

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
        """The results so far, in the order of the items, once they are enough. None stands for a missing result.

        Returns `grace_ms` after `is_enough` accepts the results, when all calls have ended, or after `timeout_ms`.

        All items begin at once, unless you give `hedge_delays_ms`. Then item i + 1 begins when item i has taken
        `hedge_delays_ms[i]`, or when all items that began have ended and their results are not enough.

        `lanes` names the threads that each item uses, by default its index. Calls that hang in one lane delay no other
        lane, now or later.
        """


class Clock(Protocol):
    """Time, in one adapter."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> float:
        """Milliseconds since an unknown moment, for durations. May stand still while the instance is frozen."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Waits that long."""


class Entropy(Protocol):
    """Random bytes, in one adapter."""

    def random_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The time, random bytes and threads of a function instance."""

    clock: Clock
    entropy: Entropy
    executor: Executor


class CloudFormation(Protocol):
    """The caller of a custom resource."""

    def answer(self, url: str, body: bytes) -> None:
        """Put the answer to the URL that the event names. Raises STORAGE_UNAVAILABLE if no try succeeds."""

    def is_rolling_back(self, stack_id: str) -> bool:
        """True while the stack goes back to its previous template. One call. Raises STORAGE_UNAVAILABLE."""
