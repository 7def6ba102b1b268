"""When a reader at the end of its log asks again, and when it goes to sleep until a wake-up.

Asking each `interval_ms` costs a request each time. Sleep costs a wake-up each time that records come. Which way is the
cheaper one depends on the next gap between records, which nobody knows. So the reader rents before it buys: it asks
until that has cost as much as a wake-up, and sleeps then. No gap costs it more than twice the better way.

It sleeps at once where sleep has been the better way lately: the *surplus* is what asking all the time would have cost
more than sleeping in the last gaps. Each gap adds to it or takes from it, within 0 and two wake-ups. With a surplus of
one wake-up, even a wrong guess leaves all gaps together within twice the better of both ways
(tests/sdk/wake_ups/test_rhythm.py plays gaps from 1 ms to 1 hour).

Costs are counted in requests that find nothing, computed from the price table.
"""

from functools import lru_cache

from penstock import prices

_SPREAD = 0.1  # on top of an interval: readers that began together do not come back together
_GB_SECONDS = 0.5 * 0.012  # of a fetch that finds nothing: half a GB for 12 ms (docs/performance/requests.md)


class Rhythm:
    """The pace of one reader. With an `interval_ms` of 0 it never waits, and sleeps at once."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.next_ms = 0  # from then on, the next request may go out
        self._asked_ms = 0
        self._records_ms: int | None = None
        self._empty = 0  # answers without records, since records came
        self._surplus = 0.0
        self._woken = 1  # partitions with records in the last answer that had some: a wake-up wakes so many

    def is_awake(self, partitions: int) -> bool:
        """True if a reader of so many partitions asks on, each interval. Else its next request may arm them."""
        price = wake_up_price(partitions, self._woken)
        return self.interval_ms > 0 and self._surplus < price and self._empty + 1 < price

    def arms_ms(self, partitions: int) -> int:
        """The time of the request that arms, once the reader may sleep: the next beat, unless it sleeps at once."""
        price = wake_up_price(partitions, self._woken)
        return self.next_ms if self.interval_ms and self._surplus < price else 0

    def asked(self, now_ms: int) -> None:
        """A request of the rhythm goes out."""
        self._asked_ms = now_ms
        self.next_ms = now_ms + self.interval_ms

    def answered(self, partitions: int, found: int, *, now_ms: int, chance: float) -> None:
        """Take an answer with records of `found` partitions, of the awake ones. `chance` is uniform in [0, 1)."""
        self.next_ms = self._asked_ms + int(self.interval_ms * (1 + _SPREAD * chance))
        if not found:
            self._empty += 1
            return
        self._woken = found
        if self._records_ms is not None and self.interval_ms:
            price = wake_up_price(partitions, found)
            asking = max(1.0, (now_ms - self._records_ms) / self.interval_ms)
            self._surplus = min(max(0.0, self._surplus + asking - price), 2 * price)
        self._records_ms, self._empty = now_ms, 0


@lru_cache
def wake_up_price(partitions: int, woken: int = 1) -> float:
    """The price of sleep and wake-up, in requests that find nothing in so many partitions.

    Sleep takes a request that arms, and a write for each partition: the `woken` ones, because the others are armed
    still. The wake-up is published and delivered, and a request follows it.
    """
    armed = prices.WRITE_UNITS.of(woken) + prices.APPSYNC_OPERATIONS.of(2)
    return (2 * _request(woken) + armed) / _request(max(partitions, woken))


def _request(partitions: int) -> float:
    """The dollars of a request that finds nothing."""
    return (
        prices.API_REQUESTS.of(1)
        + prices.LAMBDA_REQUESTS.of(1)
        + prices.LAMBDA_GB_SECONDS.of(_GB_SECONDS)
        + prices.READ_UNITS.of(partitions)
    )
