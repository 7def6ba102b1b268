"""The decision whether and when to try again. Time, chance and waiting are the caller's.

Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"): the delay is uniform between zero and an
exponentially growing bound. So clients that failed together do not come back together. A `Retry-After` of the service
is a lower bound, and the jitter comes on top of it.
"""

from dataclasses import dataclass

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import PenstockError

NEVER_MS = 2**63  # later than any clock's time


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waiting times between tries, in milliseconds: up to `backoff_ms`, then up to twice that, and so on."""

    backoff_ms: int = 100
    backoff_max_ms: int = 5_000

    def __post_init__(self) -> None:
        if not 0 < self.backoff_ms <= self.backoff_max_ms:
            raise ValueError(
                f"backoff_ms={self.backoff_ms}, backoff_max_ms={self.backoff_max_ms}: "
                "use 0 < backoff_ms <= backoff_max_ms"
            )

    def retry_at_ms(
        self, error: PenstockError, *, failures: int, now_ms: int, deadline_ms: int, chance: float
    ) -> int | None:
        """The time of the next try after the `failures`-th failure (1 is the first), or None to give up.

        It gives up on errors that a retry cannot heal, and if the next try would come after `deadline_ms`. `chance` is
        uniform in [0, 1).
        """
        if not error.code.is_retriable:
            return None
        jitter_ms = full_jitter_ms(failures - 1, self.backoff_ms, self.backoff_max_ms, chance)
        retry_at_ms = now_ms + int(error.facts.get("retry_after_ms", 0) + jitter_ms)
        return retry_at_ms if retry_at_ms <= deadline_ms else None


class Attempts:
    """The tries of one request, until `deadline_ms`.

    `maybe_applied` is true once one of them may have been applied. No later try takes that back (G3).
    """

    def __init__(self, policy: RetryPolicy, *, is_repeatable: bool, deadline_ms: int) -> None:
        self._policy = policy
        self._is_repeatable = is_repeatable
        self._deadline_ms = deadline_ms
        self._failures = 0
        self.maybe_applied = False

    def wait_ms(self, error: PenstockError, *, now_ms: int, chance: float) -> int | None:
        """The time to wait after this failure before the next try, or None to give up.

        A request that is not repeatable gets another try only if the failure certainly changed nothing.
        """
        self._failures += 1
        self.maybe_applied |= error.maybe_applied
        if error.maybe_applied and not self._is_repeatable:
            return None
        retry_at_ms = self._policy.retry_at_ms(
            error, failures=self._failures, now_ms=now_ms, deadline_ms=self._deadline_ms, chance=chance
        )
        return None if retry_at_ms is None else retry_at_ms - now_ms
