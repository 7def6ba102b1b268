"""Wait for records between two looks, as long as the caller asked, and as the stage has waiting time left.

A request that waits holds a function instance. Without a bound, waiting consumers would hold all instances of the
account, and producers would get none. So a wait is taken from the stage's pool of waiting time, a second at a time
(docs/adr/0058).
"""

from math import ceil
from types import TracebackType

from penstock_core.errors import PenstockError
from penstock_core.limits import FETCH_POLL_MS_MAX, FETCH_POLL_MS_MIN
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import take_share

_POLL_GROWTH = 1.5


class Wait:
    """The pauses of one request, which grow up to `FETCH_POLL_MS_MAX`. Leaving the block gives unused time back.

    `again_ms` is None, or the time after which the caller should come again: the stage has cut its wait short. It is no
    longer than a pause, so a record is found no later than by a request that waits.
    """

    def __init__(self, instance: Instance, wait_ms: int) -> None:
        self.again_ms: int | None = None
        self._instance = instance
        self._pool = instance.tuning.wait_pool
        self._deadline_ms = instance.clock.monotonic_ms() + wait_ms
        self._pause_ms: float = FETCH_POLL_MS_MIN
        self._granted_ms = 0  # taken from the pool, and not waited yet

    def __enter__(self) -> "Wait":
        """The wait itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Gives the rest to the next request of this instance. Sends no call."""
        if self._pool is not None and self._granted_ms:
            self._instance.quota_shares.spend(self._pool.bucket_key, -self._granted_ms)
            self._granted_ms = 0

    def pause(self) -> bool:
        """Sleeps until the next look. False if the time is up, or if the stage has no waiting time left.

        Costs what `take_share` costs for the pool, once a second, and nothing without a pool.
        """
        if self._left_ms() <= 0:
            return False
        if not self._is_granted(min(self._pause_ms, self._left_ms())):
            self.again_ms = ceil(min(self._left_ms(), FETCH_POLL_MS_MAX)) or 1
            self._instance.telemetry.count("waits_cut")
            return False
        self._instance.clock.sleep_ms(max(0, min(self._pause_ms, self._left_ms())))
        self._pause_ms = min(self._pause_ms * _POLL_GROWTH, FETCH_POLL_MS_MAX)
        return True

    def _is_granted(self, pause_ms: float) -> bool:
        """Takes the next second of the wait from the pool, if this pause needs it."""
        if self._pool is None:
            return True
        if self._pool.instances == 0:
            return False
        needed_ms = ceil(pause_ms)
        if self._granted_ms < needed_ms:
            units = ceil(max(0, min(self._left_ms() - self._granted_ms, FETCH_POLL_MS_MAX)))
            try:
                take_share(self._instance, self._pool.bucket_key, self._pool.rate, units)
            except PenstockError:
                return False
            self._granted_ms += units
        self._granted_ms = max(0, self._granted_ms - needed_ms)
        return True

    def _left_ms(self) -> float:
        return self._deadline_ms - self._instance.clock.monotonic_ms()
