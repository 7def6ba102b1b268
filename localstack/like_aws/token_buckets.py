"""Token buckets for the units of partition keys and tables. The time is an argument."""

from dataclasses import dataclass, field

_BUCKETS_MAX = 10_000


@dataclass(slots=True)
class _Bucket:
    per_s: float
    tokens: float
    at_s: float

    def refill(self, now_s: float) -> None:
        self.tokens = min(self.per_s, self.tokens + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s


@dataclass(slots=True)
class TokenBuckets:
    """One bucket a name, which holds one second of its rate.

    A call is admitted while its bucket holds anything, for DynamoDB knows the size of an item only when it has it. Then
    the call is charged, which may leave a debt.
    """

    _buckets: dict[object, _Bucket] = field(default_factory=dict)

    def is_empty(self, name: object, per_s: float, now_s: float) -> bool:
        """True if the bucket `name`, of `per_s` units a second, has nothing left."""
        return self._bucket(name, per_s, now_s).tokens <= 0.0

    def charge(self, name: object, per_s: float, units: float, now_s: float) -> None:
        """Takes `units` from the bucket `name`."""
        self._bucket(name, per_s, now_s).tokens -= units

    def _bucket(self, name: object, per_s: float, now_s: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _BUCKETS_MAX:
                self._forget_full(now_s)
            bucket = self._buckets[name] = _Bucket(per_s, per_s, now_s)
        bucket.refill(now_s)
        return bucket

    def _forget_full(self, now_s: float) -> None:
        for bucket in self._buckets.values():
            bucket.refill(now_s)
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.tokens < bucket.per_s}
