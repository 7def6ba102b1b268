"""The bucket of one quota: an item that all instances charge, to stay below one rate together (docs/adr/0049).

The bucket counts what was charged since a moment, and never gives back:

    credit(now) = rate * (now - since) + burst - charged

An instance may charge while there is credit, and may overdraw it by that one charge. So a charge is an addition with a
condition, `charged < rate * (now - since) + burst`, and charges of many instances need no read. Time pays a debt.

The burst is what `QUOTA_BURST_MS` bring. Unused credit would grow above it, so the first charge after a quiet time
puts a new bucket in place of the old one.

The pool of waiting time that the instances of a stage share (docs/adr/0058).

A function instance serves one request at a time. So requests that wait for records hold as many instances as they wait
seconds in one second: a rate, which a bucket can bound as it bounds a quota.
"""

from dataclasses import dataclass

from penstock_core.limits import QUOTA_BURST_MS, QUOTA_CHARGE_MS, QUOTA_CHARGED_AHEAD_MS

_MS = 1_000
VARIABLE = "PENSTOCK_WAITS"
_SUBJECT = "waits"
_RATE = "wait_ms_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketKey:
    """The bucket of one rate of one principal or topic. A topic has its id, so that a new one begins anew.

    The bucket of a shared quota has the pattern as its name: no principal and no id of a topic has a `*`.

    `subject` and `rate` are a `Subject` and its `Rate`, or those of the stage's waiting time (wait_pool.py).
    """

    subject: str
    name: str
    rate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The units `charged` since `since_ms`, of a quota of `rate` units a second."""

    rate: int
    since_ms: int
    charged: int

    def ceiling(self, now_ms: int) -> int:
        """The most that may have been charged by now: there is credit while `charged` is below it."""
        return (self.rate * (_elapsed(self, now_ms) + QUOTA_BURST_MS)) // _MS

    def credit(self, now_ms: int) -> int:
        """The units that may be charged now, or a debt below zero."""
        return self.ceiling(now_ms) - self.charged

    def is_overfull(self, now_ms: int) -> bool:
        """True if more than a burst is unused: the next charge begins a new bucket."""
        return self.charged < self.rate * _elapsed(self, now_ms) // _MS

    def wait_ms(self, now_ms: int) -> int:
        """The time until there is credit, 0 if there is some."""
        enough_ms = -(-(self.charged + 1) * _MS // self.rate)
        return max(0, enough_ms - QUOTA_BURST_MS - _elapsed(self, now_ms))


def fresh_bucket(rate: int, charged: int, now_ms: int) -> Bucket:
    """A full bucket from which the first units are charged."""
    return Bucket(rate=rate, since_ms=now_ms, charged=charged)


def units_to_charge(*, rate: int, needed: int, expected: int, credit: int) -> int:
    """The units that one charge takes: what a request needs, and ahead what the instance expects to spend.

    `expected` are the units that the instance would spend in `QUOTA_CHARGED_AHEAD_MS` at its pace. An instance far
    below the quota thus charges once in that time. A charge ahead takes a quarter of the credit at most, and what
    `QUOTA_CHARGE_MS` bring if there is little, so that no instance hoards what others need.
    """
    room = max(credit // 4, rate * QUOTA_CHARGE_MS // _MS)
    return max(needed, min(expected, room))


def expected_units(spent: int, elapsed_ms: float) -> int:
    """The units that an instance spends in `QUOTA_CHARGED_AHEAD_MS`, if it goes on as in the last `elapsed_ms`."""
    return int(spent * QUOTA_CHARGED_AHEAD_MS / max(elapsed_ms, _MS))


def _elapsed(bucket: Bucket, now_ms: int) -> int:
    return max(0, now_ms - bucket.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPool:
    """So many instances may wait at once, of all functions that name the same pool."""

    name: str
    instances: int

    @property
    def rate(self) -> int:
        """The milliseconds that all of them together may wait in a second."""
        return self.instances * _MS

    @property
    def bucket_key(self) -> BucketKey:
        """The bucket that the instances charge. No quota of a principal or a topic has it."""
        return BucketKey(subject=_SUBJECT, name=self.name, rate=_RATE)


def format_wait_pool(pool: WaitPool) -> str:
    """The pool as a function's environment holds it: `fetch=112`."""
    return f"{pool.name}={pool.instances}"


def parse_wait_pool(text: str | None) -> WaitPool | None:
    """The inverse of `format_wait_pool`; None, for waits without a bound, where there is no text.

    Raises ValueError for another text.
    """
    if text is None:
        return None
    name, _, instances = text.partition("=")
    if not name or not (instances.isascii() and instances.isdigit()):
        raise ValueError(f"{VARIABLE}={text!r}: give NAME=INSTANCES, for example fetch=112")
    return WaitPool(name=name, instances=int(instances))
