"""What this function instance has charged of quotas and not spent yet, and what it knows of their buckets.

A share is charged ahead, so an instance that forgets it only spends less. So memory may be lost at any time.

The bytes that topics hold, by their heads: an instance remembers them for `QUOTA_STORED_AGE_MS`, and adds what it lets
through itself, but for what then fails. So a topic gets no more above its quota than other instances append in this
time, and what waits: delayed records, and stages of transactions.

The quotas of the stage, remembered between requests, so that a warm request reads none.

Remembered quotas may be up to `TTL_MS` old: a change takes so long until all instances go by it. If they cannot be
read, the instance goes by those that it remembers, and without any by none: a trouble of ours refuses no request. But
it refuses creations then, since nothing would ever take back one too many.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId
from penstock_core.limits import INSTANCE_SHARES_MAX, QUOTA_PAUSE_MS_MAX, QUOTA_PAUSE_MS_MIN, QUOTA_STORED_AGE_MS
from penstock_core.quotas.bucket import Bucket, BucketKey, expected_units
from penstock_core.quotas.quota import Count, QuotaBook, Rate, RateLimit, Subject
from penstock_service.instance.telemetry import Telemetry
from penstock_service.instance.update_window import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_service.ports.access import QuotaStore

_DOUBLINGS_MAX = 10
TTL_MS = 30_000


@dataclass(slots=True, kw_only=True, eq=False)
class _Share:
    units: int = 0  # below zero: spent before they were charged
    bucket: Bucket | None = None
    spent: int = 0  # since `since`
    since: Moment
    blocked_at: Moment | None = None
    blocked_ms: float = 0
    refusals: int = 0  # in a row


class QuotaShares:
    """The shares of one function instance. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shares: dict[BucketKey, _Share] = {}

    def take(self, key: BucketKey, needed: int, rate: int) -> int | None:
        """Takes units from the share. Gives None, or the units that are missing, counting a debt.

        Takes none while the share is blocked: after a refused charge, or one of a debt that left no credit.
        """
        with self._lock:
            share = self._share(key)
            if share.bucket is not None and share.bucket.rate != rate:  # the quota was altered
                share.bucket, share.blocked_at, share.units = None, None, min(share.units, 0)
            if share.units < needed or self._blocked_ms(share) > 0:
                return needed - share.units
            share.units -= needed
            share.spent += needed
            return None

    def spend(self, key: BucketKey, units: int) -> None:
        """Takes units that are spent already; below zero gives units back. The next charge pays a debt."""
        with self._lock:
            share = self._share(key)
            share.units -= units
            share.spent += units

    def left(self, key: BucketKey) -> int:
        """The units that may be spent without a charge."""
        with self._lock:
            return self._share(key).units

    def add(self, key: BucketKey, units: int, bucket: Bucket) -> None:
        """Notes that units were charged, and the bucket as it is then. The pace is counted anew."""
        with self._lock:
            share = self._share(key)
            share.units += units
            share.bucket = bucket
            share.spent, share.since = 0, Moment.now(self._clock)
            share.blocked_at, share.refusals = None, 0

    def bucket(self, key: BucketKey) -> Bucket | None:
        """The bucket as it was last seen."""
        with self._lock:
            return self._share(key).bucket

    def expected(self, key: BucketKey) -> int:
        """The units that this instance may spend until its next charge, going by its pace."""
        with self._lock:
            share = self._share(key)
            return expected_units(share.spent, share.since.age_ms(self._clock))

    def block(self, key: BucketKey, bucket: Bucket, wait_ms: int, chance: float) -> float:
        """Notes that a charge was refused, for want of credit for so long. Gives the time until the next one is tried.

        That time doubles with each refusal, so that many instances do not throttle the bucket. Credit that comes
        meanwhile is not lost, because the burst holds it.
        """
        with self._lock:
            share = self._share(key)
            pause_ms = min(QUOTA_PAUSE_MS_MIN << min(share.refusals, _DOUBLINGS_MAX), QUOTA_PAUSE_MS_MAX)
            share.refusals += 1
            share.bucket, share.blocked_at = bucket, Moment.now(self._clock)
            share.blocked_ms = max(wait_ms, pause_ms) + chance * min(max(wait_ms, pause_ms), QUOTA_PAUSE_MS_MAX)
            return share.blocked_ms

    def blocked_ms(self, key: BucketKey) -> float:
        """The time for which no charge is to be tried, 0 if one may be."""
        with self._lock:
            return self._blocked_ms(self._share(key))

    def _blocked_ms(self, share: _Share) -> float:
        if share.blocked_at is None:
            return 0
        return max(0, share.blocked_ms - share.blocked_at.age_ms(self._clock))

    def _share(self, key: BucketKey) -> _Share:
        share = self._shares.get(key)
        if share is None:
            if len(self._shares) >= INSTANCE_SHARES_MAX:
                self._shares.pop(next(iter(self._shares)))
            share = self._shares[key] = _Share(since=Moment.now(self._clock))
        return share


@dataclass(frozen=True, slots=True, eq=False)
class ReservedBytes:
    """Bytes of a topic that `StoredBytes` counts for a request, and when the heads were read that they came on top of.

    The call that has reserved them releases those that it does not append.
    """

    topic_id: TopicId
    size: int
    read: Moment


class StoredBytes:
    """The bytes that topics hold, as this function instance knows them. Safe for use by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[TopicId, tuple[int, Moment]] = {}

    def known(self, topic_id: TopicId) -> tuple[int, float] | None:
        """The bytes and their age in milliseconds, None if they were read too long ago, or never."""
        with self._lock:
            return self._known(topic_id)

    def note(self, topic_id: TopicId, held: int, read: Moment) -> None:
        """Notes the bytes of heads that were read from that moment on."""
        with self._lock:
            if len(self._held) >= INSTANCE_SHARES_MAX:
                self._held.clear()
            self._held[topic_id] = held, read

    def reserve(self, topic_id: TopicId, size: int, limit: int) -> ReservedBytes | None:
        """Counts bytes that this instance lets through. None if the topic is not known, or would exceed the limit."""
        with self._lock:
            if self._known(topic_id) is None:
                return None
            held, read = self._held[topic_id]
            if held + size > limit:
                return None
            self._held[topic_id] = held + size, read
            return ReservedBytes(topic_id, size, read)

    def release(self, reserved: ReservedBytes, size: int) -> None:
        """Counts bytes no more that were not appended. Heads that were read meanwhile never had them."""
        with self._lock:
            held, read = self._held.get(reserved.topic_id, (0, None))
            if read is reserved.read:
                self._held[reserved.topic_id] = held - size, read

    def _known(self, topic_id: TopicId) -> tuple[int, float] | None:
        held, read = self._held.get(topic_id, (0, None))
        if read is None or (age_ms := read.age_ms(self._clock)) >= QUOTA_STORED_AGE_MS:
            return None
        return held, age_ms


class QuotaCache:
    """A cache over a QuotaStore, at most `QUOTAS_MAX` quotas. Each function instance has one."""

    def __init__(self, quotas: QuotaStore, clock: Clock, telemetry: Telemetry) -> None:
        self._store = quotas
        self._clock = clock
        self._telemetry = telemetry
        self._asked: Moment | None = None
        self._is_known = False  # they were read once
        self._book = QuotaBook(())

    def rate_of(self, subject: Subject, name: str, rate: Rate) -> RateLimit | None:
        """The rate that holds for the principal or topic, None without one. One query if the memory is old."""
        return self._book.rate(subject, name, rate) if self.has_quotas(subject) else None

    def stored_bytes_max(self, topic: str) -> int | None:
        """The bytes that the topic may hold, None without a bound. One query as `rate_of`."""
        return self._book.stored_bytes_max(topic) if self.has_quotas(Subject.TOPIC) else None

    def counts_of(self, principal: str) -> Mapping[Count, int]:
        """The limits of what the principal may create, without those that are missing. One query as `rate_of`.

        Raises STORAGE_UNAVAILABLE if the instance does not know the quotas and cannot read them.
        """
        has_quotas = self.has_quotas(Subject.PRINCIPAL)
        if not self._is_known:
            self.forget()
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                "the quotas cannot be read now, so nothing is created: try again",
            )
        return self._book.counts(principal) if has_quotas else {}

    def has_quotas(self, subject: Subject) -> bool:
        """True if some principal, or some topic, has a quota. One query if the memory is old."""
        if self._asked is None or self._asked.age_ms(self._clock) >= TTL_MS:
            self._read()
        return subject in self._book.subjects

    def forget(self) -> None:
        """Makes the next `rate_of` read."""
        self._asked = None

    def _read(self) -> None:
        # The time before the read: the quotas that it shows may be as old as that.
        asked = Moment.now(self._clock)
        try:
            found = self._store.list()
        except PenstockError as error:
            self._telemetry.log("quotas_unread", error=error.code.name)
        else:
            self._book = QuotaBook(found)
            self._is_known = True
        self._asked = asked
