"""The pool of waiting time that the instances of a stage share (docs/adr/0058).

A function instance serves one request at a time. So requests that wait for records hold as many instances as they wait
seconds in one second: a rate, which a bucket can bound as it bounds a quota.
"""

from dataclasses import dataclass

from penstock_core.quotas.bucket import BucketKey

VARIABLE = "PENSTOCK_WAITS"
_SUBJECT = "waits"
_RATE = "wait_ms_per_s"
_MS = 1_000


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
