"""Acknowledgements on their way to the service: queued, sent, and queued again after a failure.

A repeat is harmless: the service answers DONE for offsets that are finished already.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from penstock.retry import NEVER_MS


class LockKey(NamedTuple):
    """A lock, as the service names it."""

    topic: str
    partition: int
    lock_id: str


class Verb(Enum):
    """The types of acknowledgements, as the API has them."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"


class Wish(NamedTuple):
    """A decision about records. `delay_ms` None leaves the delay to the service; `is_uncounted` is for releases."""

    verb: Verb
    delay_ms: int | None = None
    reason: str = ""
    is_uncounted: bool = False
    lock_ms: int | None = None


ACCEPT = Wish(Verb.ACCEPT)
RELEASE = Wish(Verb.RELEASE)
GIVE_BACK = Wish(Verb.RELEASE, delay_ms=0, is_uncounted=True)

_REASON_BYTES_MAX = 200


def reject(reason: str) -> Wish:
    """A rejection. The service keeps 200 bytes of the reason."""
    return Wish(Verb.REJECT, reason=reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One entry of a request. `is_whole`: the offsets are all that the lock was made for."""

    key: LockKey
    wish: Wish
    offsets: tuple[int, ...]
    is_whole: bool

    def to_json(self) -> dict[str, Any]:
        """The entry as the HTTP API takes it."""
        entry: dict[str, Any] = {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "lock_id": self.key.lock_id,
            "offsets": None if self.is_whole else ranges_of(self.offsets),
            "type": self.wish.verb.value,
        }
        if self.wish.verb is Verb.RELEASE:
            entry |= {"delay_ms": self.wish.delay_ms, "uncounted": self.wish.is_uncounted}
        elif self.wish.verb is Verb.REJECT:
            entry["reason"] = self.wish.reason
        elif self.wish.lock_ms is not None:
            entry["lock_ms"] = self.wish.lock_ms
        return entry


@dataclass(slots=True)
class _Entry:
    offsets: set[int] = field(default_factory=set)
    count: int = 0  # of the lock's records


class AcknowledgementQueue:
    """The entries that were not sent yet, by lock and wish. At `due_ms` they go, also without an acquire."""

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._entries: dict[tuple[LockKey, Wish], _Entry] = {}
        self.due_ms = NEVER_MS

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, key: LockKey, wish: Wish, offsets: Iterable[int], *, lock_count: int, now_ms: int) -> None:
        """Queue an entry. Everything but an acceptance is for other consumers, or urgent: it goes at once."""
        entry = self._entries.setdefault((key, wish), _Entry())
        entry.offsets.update(offsets)
        entry.count = lock_count
        self.due_ms = min(self.due_ms, now_ms + self._linger_ms if wish.verb is Verb.ACCEPT else now_ms)

    def hurry(self, now_ms: int) -> None:
        """Send what there is now."""
        if self._entries:
            self.due_ms = min(self.due_ms, now_ms)

    def take(self, most: int, now_ms: int) -> tuple[Acknowledgement, ...]:
        """The oldest entries, `most` at the most."""
        chosen = list(islice(self._entries.items(), most))
        for place, _ in chosen:
            del self._entries[place]
        self.due_ms = now_ms if self._entries else NEVER_MS
        return tuple(
            Acknowledgement(
                key=key,
                wish=wish,
                offsets=tuple(sorted(entry.offsets)),
                is_whole=wish.verb is Verb.RENEW or len(entry.offsets) == entry.count,
            )
            for (key, wish), entry in chosen
        )

    def put_back(self, entries: Sequence[Acknowledgement], *, again_ms: int) -> None:
        """These may not have arrived: send them again from `again_ms` on. A renewal is made anew where it is due."""
        for each in entries:
            if each.wish.verb is not Verb.RENEW:
                entry = self._entries.setdefault((each.key, each.wish), _Entry())
                entry.offsets.update(each.offsets)
                entry.count = max(entry.count, len(each.offsets) if each.is_whole else len(each.offsets) + 1)
        if self._entries:
            self.due_ms = again_ms

    def drop(self, key: LockKey) -> None:
        """The lock is lost: nothing of it is sent any more."""
        for place in [each for each in self._entries if each[0] == key]:
            del self._entries[place]
        if not self._entries:
            self.due_ms = NEVER_MS


class Refusal(NamedTuple):
    """Offsets of a lock that the service did not acknowledge; None for all of them.

    `is_done`: they are finished already. That answers an acknowledgement, but it ends the right to the records.
    """

    key: LockKey
    offsets: frozenset[int] | None
    result: str
    message: str

    @property
    def is_done(self) -> bool:
        """The records are finished already."""
        return self.result == "done"

    def covers(self, offset: int) -> bool:
        """The offset is one of them."""
        return self.offsets is None or offset in self.offsets


def refusals(acknowledged: Iterable[Mapping[str, Any]], sent: Iterable[Acknowledgement]) -> list[Refusal]:
    """The entries of an answer that say that something is lost. `sent` bounds the offsets that are believed."""
    known: dict[LockKey, set[int]] = {}
    for entry in sent:
        known.setdefault(entry.key, set()).update(entry.offsets)
    found: list[Refusal] = []
    for each in acknowledged:
        if each.get("result") == "ok":
            continue
        key = LockKey(str(each["topic"]), int(each["partition"]), str(each["lock_id"]))
        ranges = each.get("offsets")
        named = None
        if ranges is not None:
            named = frozenset(o for o in known.get(key, ()) if any(start <= o < end for start, end in ranges))
        found.append(Refusal(key, named, str(each.get("result")), str(each.get("message", ""))))
    return found


def ranges_of(offsets: Sequence[int]) -> list[list[int]]:
    """Sorted offsets as half-open ranges."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return ranges
