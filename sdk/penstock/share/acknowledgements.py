"""Acknowledgements on their way to the service: queued, sent, and queued again after a failure.

A repeat is harmless: the service answers DONE for offsets that are finished already.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from penstock.arguments import check, check_text, check_whole
from penstock.retry import NEVER_MS
from penstock.share.settings import LOCK_MS_MAX


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
    """A decision about records. `delay_ms` None leaves the delay to the service; `is_uncounted` is for releases.

    `reason` is for rejections and releases.
    """

    verb: Verb
    delay_ms: int | None = None
    reason: str = ""
    is_uncounted: bool = False
    lock_ms: int | None = None


ACCEPT = Wish(Verb.ACCEPT)
RELEASE = Wish(Verb.RELEASE)
LOCKED_UP = Wish(Verb.RELEASE, delay_ms=10_000, is_uncounted=True)  # another worker may decrypt it, or this one later
GIVE_BACK = Wish(Verb.RELEASE, delay_ms=0, is_uncounted=True)

_REASON_BYTES_MAX = 200


def reject(reason: str) -> Wish:
    """A rejection. The service keeps 200 bytes of the reason."""
    return Wish(Verb.REJECT, reason=_short(reason))


def release(reason: str, delay_ms: int | None = None) -> Wish:
    """A release for a reason, of which the service takes 200 bytes. Raises InvalidError for a bad delay or reason."""
    check_text("reason", reason)
    if delay_ms is not None:
        check_whole("delay_ms", delay_ms, 0)
        check(delay_ms <= LOCK_MS_MAX, f"delay_ms={delay_ms}: use 0 to {LOCK_MS_MAX:,}")
    return Wish(Verb.RELEASE, delay_ms=delay_ms, reason=_short(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One entry of a request. `is_whole`: the offsets are all that the lock was made for.

    `lock_id` tells the lock as the service has it now, while `key` names it as it was acquired.
    """

    key: LockKey
    lock_id: str
    wish: Wish
    offsets: tuple[int, ...]
    is_whole: bool

    def to_json(self) -> dict[str, Any]:
        """The entry as the HTTP API takes it."""
        entry: dict[str, Any] = {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "lock_id": self.lock_id,
            "offsets": None if self.is_whole else ranges_of(self.offsets),
            "type": self.wish.verb.value,
        }
        if self.wish.verb is Verb.RELEASE:
            entry |= {"delay_ms": self.wish.delay_ms, "uncounted": self.wish.is_uncounted}
            if self.wish.reason:  # a service of before 0.2 refuses it
                entry["reason"] = self.wish.reason
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

    def __init__(self) -> None:
        self._entries: dict[tuple[LockKey, Wish], _Entry] = {}
        self.due_ms = NEVER_MS

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, key: LockKey, wish: Wish, offsets: Iterable[int], *, lock_count: int, due_ms: int) -> None:
        """Queue an entry that goes at `due_ms` at the latest."""
        entry = self._entries.setdefault((key, wish), _Entry())
        entry.offsets.update(offsets)
        entry.count = lock_count
        self.due_ms = min(self.due_ms, due_ms)

    def hurry(self, now_ms: int) -> None:
        """Send what there is now."""
        if self._entries:
            self.due_ms = min(self.due_ms, now_ms)

    def take(self, most: int, now_ms: int, lock_id_of: Callable[[LockKey], str]) -> tuple[Acknowledgement, ...]:
        """The oldest entries, `most` at the most."""
        chosen = list(islice(self._entries.items(), most))
        for place, _ in chosen:
            del self._entries[place]
        self.due_ms = now_ms if self._entries else NEVER_MS
        return tuple(
            Acknowledgement(
                key=key,
                lock_id=lock_id_of(key),
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
    """Offsets of an entry that the service did not acknowledge; None for all of them.

    `is_done`: they are finished already. That answers an acknowledgement, but it ends the right to the records.
    """

    ranges: Sequence[Sequence[int]] | None
    result: str
    message: str

    @property
    def is_done(self) -> bool:
        """The records are finished already."""
        return self.result == "done"

    def covers(self, offset: int) -> bool:
        """The offset is one of them."""
        return self.ranges is None or _has(self.ranges, offset)


def refusals(
    acknowledged: Iterable[Mapping[str, Any]], sent: Iterable[Acknowledgement]
) -> Iterator[tuple[Acknowledgement, list[Refusal]]]:
    """Each entry with what of it is refused.

    The answer tells the results in the order of the request. An entry has several if its offsets have different ones.
    Two entries of one lock may be for the same offsets, such as an acceptance and the renewal of the rest. So each has
    its own results only: those for its offsets, up to the first one for an offset that has a result already.
    """
    left = deque(acknowledged)
    for entry in sent:
        place = entry.key._replace(lock_id=entry.lock_id)
        seen: list[Sequence[int]] = []
        refused: list[Refusal] = []
        while left and _place_of(left[0]) == place:
            ranges = left[0].get("offsets")
            if seen and (ranges is None or _overlap(seen, ranges)):
                break
            if ranges is not None and not (
                entry.is_whole or all(_has(ranges_of(entry.offsets), *each) for each in ranges)
            ):
                break
            each = left.popleft()
            if each.get("result") != "ok":
                refused.append(Refusal(ranges, str(each.get("result")), str(each.get("message", ""))))
            if ranges is None:
                break
            seen += ranges
        yield entry, refused


def next_lock_ids(
    acknowledged: Iterable[Mapping[str, Any]], sent: Iterable[Acknowledgement]
) -> Iterator[tuple[LockKey, str]]:
    """The lock ids with which the service knows these locks from now on."""
    keys = {entry.key._replace(lock_id=entry.lock_id): entry.key for entry in sent}
    for each in acknowledged:
        key, lock_id = keys.get(_place_of(each)), each.get("next_lock_id")
        if key is not None and isinstance(lock_id, str):
            yield key, lock_id


def _place_of(acknowledged: Mapping[str, Any]) -> LockKey:
    return LockKey(str(acknowledged["topic"]), int(acknowledged["partition"]), str(acknowledged["lock_id"]))


def _has(ranges: Iterable[Sequence[int]], start: int, end: int | None = None) -> bool:
    """One of the ranges has all from `start` on, to `end`."""
    return any(first <= start and (start + 1 if end is None else end) <= last for first, last in ranges)


def _overlap(some: Iterable[Sequence[int]], others: Sequence[Sequence[int]]) -> bool:
    return any(start < last and first < end for start, end in some for first, last in others)


def ranges_of(offsets: Sequence[int]) -> list[list[int]]:
    """Sorted offsets as half-open ranges."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return ranges


def _short(reason: str) -> str:
    return reason.encode(errors="replace")[:_REASON_BYTES_MAX].decode(errors="ignore")
