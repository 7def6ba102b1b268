"""Readers of the same records in one process fetch them once.

A reader claims what it is about to fetch. For each partition it gets one of three answers, under one lock:

| the claim finds                              | the reader                                                     |
|----------------------------------------------|----------------------------------------------------------------|
| an answer that covers the offset             | takes it, in place of a fetch                                  |
| a fetch of another reader at the same offset | waits for that fetch to end, and claims again                  |
| neither                                      | fetches, and tells `end` what came                             |

Invariants:

- Only readers of the same service share, whose requests carry the same proof of who they are. So each reader has the
  rights and the quotas under which the records were read.
- A fetch that fails leaves nothing behind. The readers that waited for it fetch for themselves, and meet their own
  errors. A reader that leaves ends its fetches in the same way.
- No reader waits for another one's fetch longer than `SDK_SHARED_PATIENCE_MS` beyond the time that this fetch may wait
  in the service.
- An answer without records says that the log ended there when it was asked for. It counts only for a reader that wants
  to know what was so after that reader's own last question (`Wanted.after_ms`), so once for each reader.
- Only whole batches are kept, by their CRC: bytes that were changed on their way hurt the reader that fetched them.
- Answers with records are kept while another reader reads the partition, for `SDK_SHARED_MS` and within
  `SDK_SHARED_BYTES_MAX`. An answer is counted with all its bytes: one slice of it holds all of them in memory. An end
  holds none of them, and is kept only if its reader asked for ends.
- What is too old is forgotten with the next claim, and by `forget_old`, for which each user has a timer.
"""

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock.system import ProcessLock, fork_count
from penstock_core.errors import PenstockError
from penstock_core.limits import (
    FETCH_BYTES_MAX,
    SDK_SAFETY_NET_MS,
    SDK_SHARED_BYTES_MAX,
    SDK_SHARED_MS,
    SDK_SHARED_PATIENCE_MS,
)
from penstock_core.records.record_batch import crc_is_valid, walk

_ENDS_MAX = 10_000  # partitions whose last end is known
_NOTHING = memoryview(b"")  # an empty slice of an answer would hold all of it


Part = tuple[Mapping[str, Any], memoryview]
"""The entry of a partition in an answer to a fetch, and its batches."""


class Answer(Protocol):
    """An answer to a fetch: an entry for each partition, and the bytes that they count."""

    @property
    def partitions(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102

    @property
    def body(self) -> memoryview: ...  # noqa: D102


class Place(NamedTuple):
    """A partition of a topic, as readers with the same filter see it."""

    topic_id: str
    partition: int
    filter: str | None = None


class Wanted(NamedTuple):
    """A place and an offset that a reader is about to fetch.

    `after_ms`: an answer without records counts only if it was asked for after this; `NEVER_MS` for none at all. With
    `is_arming` it counts only if it has armed the partition. The reader waits for a fetch that began after
    `joins_after_ms`.
    """

    place: Place
    offset: int
    after_ms: int = NEVER_MS
    joins_after_ms: int = -1
    is_arming: bool = False
    bytes_max: int = FETCH_BYTES_MAX


class Kept(NamedTuple):
    """The answer to a fetch from `offset` on: the fields of its entry, its batches, and when it was asked for."""

    offset: int
    entry: Mapping[str, Any]
    data: memoryview
    asked_ms: int

    def covers(self, offset: int) -> bool:
        """The answer tells what is at this offset."""
        return self.offset <= offset < int(self.entry["next_offset"])

    def from_offset(self, offset: int) -> "Kept":
        """The answer without the batches below the one that holds the offset."""
        if offset == self.offset:
            return self
        start = next((at for at, header in walk(self.data) if header.next_offset > offset), len(self.data))
        data = self.data[start:]
        return Kept(offset, {**self.entry, "length": len(data)}, data, self.asked_ms)


class Claim(NamedTuple):
    """The result of a claim, by the index of each wanted place. The caller fetches `own` under `flight`.

    If anything is kept, nothing is to be fetched yet. `busy_until_ms` is when the caller claims again that waits for
    others, if nothing wakes it before.
    """

    kept: Mapping[int, Kept]
    own: Sequence[int]
    flight: "Flight | None"
    busy_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flight:
    """A fetch that is under way, and the readers that wait for it."""

    wanted: Sequence[Wanted]
    asked_ms: int
    until_ms: int  # then the others wait for it no longer
    waiting: list[Callable[[], None]] = field(default_factory=list)


class _Answer(NamedTuple):
    """The kept parts of one answer, which go together: they are slices of the same bytes."""

    asked_ms: int
    size: int
    parts: Sequence[tuple[Place, Kept]]


class SharedReads:
    """The answers and the fetches of readers that share. Several threads and event loops may use one.

    Its lock is taken last, and `wake` is called without it. So readers may call it under locks of their own.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._reading: weakref.WeakKeyDictionary[SharedReader, frozenset[TopicPartition]] = weakref.WeakKeyDictionary()
        self._common: frozenset[TopicPartition] = frozenset()  # of two readers or more
        self._flights: dict[tuple[Place, int], Flight] = {}
        self._answers: deque[_Answer] = deque()
        self._bytes = 0
        self._kept: dict[Place, deque[Kept]] = {}
        self._ends: OrderedDict[Place, Kept] = OrderedDict()

    def reads(self, reader: "SharedReader", partitions: Collection[TopicPartition]) -> None:
        """The reader reads exactly these partitions from now on. With none of them it has left."""
        with self._lock:
            if partitions:
                self._reading[reader] = frozenset(partitions)
            else:
                self._reading.pop(reader, None)
            counts = Counter(each for some in self._reading.values() for each in some)
            self._common = frozenset(each for each, count in counts.items() if count > 1)
            if not self._common:
                self._forget_all()

    def is_common(self, partition: TopicPartition) -> bool:
        """Another reader reads the partition, too."""
        return partition in self._common

    def claim(
        self, wake: Callable[[], None], wanted: Sequence[Wanted], bytes_max: int, now_ms: int, wait_ms: int
    ) -> Claim:
        """Take what is kept, `bytes_max` at most, or begin a fetch of what nobody fetches.

        `wait_ms` is the time that this fetch may wait in the service. `wake` is called, from any thread, when a fetch
        ends that the caller waits for.
        """
        with self._lock:
            self._drop_old(now_ms)
            kept: dict[int, Kept] = {}
            for index, each in enumerate(wanted):
                found = self._find(each)
                if found is not None and len(found.data) <= min(bytes_max, each.bytes_max):
                    kept[index] = found
                    bytes_max -= len(found.data)
            if kept:
                return Claim(kept, (), None, NEVER_MS)
            busy = {index: self._flights.get((each.place, each.offset)) for index, each in enumerate(wanted)}
            own: list[int] = []
            busy_until_ms = NEVER_MS
            for index, flight in busy.items():
                if flight is None or now_ms >= flight.until_ms or flight.asked_ms <= wanted[index].joins_after_ms:
                    own.append(index)
                else:
                    flight.waiting.append(wake)
                    busy_until_ms = min(busy_until_ms, flight.until_ms)
            return Claim({}, own, self._begin([wanted[at] for at in own], now_ms, wait_ms), busy_until_ms)

    def end(self, flight: Flight, answers: Sequence[Part] | None, size: int) -> None:
        """A fetch has ended with these answers, which are `size` bytes in all, or with None by a failure."""
        kept = [] if answers is None else _kept(flight, answers)
        with self._lock:
            for each in flight.wanted:
                if self._flights.get((each.place, each.offset)) is flight:
                    del self._flights[(each.place, each.offset)]
            self._keep(flight, kept, size)
        for wake in flight.waiting:
            wake()

    def forget_old(self, now_ms: int) -> int:
        """Let go what is too old. Returns when the next of it is, `NEVER_MS` if nothing is kept."""
        with self._lock:
            self._drop_old(now_ms)
            answer_ms = self._answers[0].asked_ms + SDK_SHARED_MS + 1 if self._answers else NEVER_MS
            end = next(iter(self._ends.values()), None)
            return answer_ms if end is None else min(answer_ms, end.asked_ms + SDK_SAFETY_NET_MS + 1)

    def _begin(self, wanted: Sequence[Wanted], now_ms: int, wait_ms: int) -> Flight | None:
        if not wanted:
            return None
        flight = Flight(wanted=wanted, asked_ms=now_ms, until_ms=now_ms + wait_ms + SDK_SHARED_PATIENCE_MS)
        for each in wanted:
            self._flights[(each.place, each.offset)] = flight
        return flight

    def _find(self, wanted: Wanted) -> Kept | None:
        for kept in self._kept.get(wanted.place, ()):
            if kept.covers(wanted.offset):
                return kept.from_offset(wanted.offset)
        end = self._ends.get(wanted.place)
        if end is None or end.offset != wanted.offset or end.asked_ms <= wanted.after_ms:
            return None
        return end if end.entry.get("armed") or not wanted.is_arming else None

    def _keep(self, flight: Flight, kept: Sequence[tuple[Place, Kept]], size: int) -> None:
        parts: list[tuple[Place, Kept]] = []
        takes_ends = {each.place for each in flight.wanted if each.after_ms != NEVER_MS}
        for place, each in kept:
            if each.covers(each.offset):
                parts.append((place, each))
            elif place in takes_ends and int(each.entry["next_offset"]) >= int(each.entry["high_watermark"]):
                self._ends[place] = each._replace(data=_NOTHING)
                self._ends.move_to_end(place)
        while len(self._ends) > _ENDS_MAX:
            self._ends.popitem(last=False)
        if parts and size <= SDK_SHARED_BYTES_MAX:
            self._answers.append(_Answer(flight.asked_ms, size, parts))
            self._bytes += size
            for place, each in parts:
                self._kept.setdefault(place, deque()).append(each)
        while self._bytes > SDK_SHARED_BYTES_MAX:
            self._drop_oldest()

    def _drop_old(self, now_ms: int) -> None:
        while self._answers and now_ms - self._answers[0].asked_ms > SDK_SHARED_MS:
            self._drop_oldest()
        while self._ends and now_ms - next(iter(self._ends.values())).asked_ms > SDK_SAFETY_NET_MS:
            self._ends.popitem(last=False)

    def _drop_oldest(self) -> None:
        answer = self._answers.popleft()
        self._bytes -= answer.size
        for place, kept in answer.parts:
            of_place = self._kept[place]
            of_place.remove(kept)
            if not of_place:
                del self._kept[place]

    def _forget_all(self) -> None:
        while self._answers:
            self._drop_oldest()
        self._ends.clear()


class SharedReader:
    """One reader's share. `wake` may be called from any thread, and takes no lock of the reader."""

    def __init__(self, shared: SharedReads, wake: Callable[[], None]) -> None:
        self._shared = shared
        self._wake = wake
        self._flights: set[Flight] = set()

    def reads(self, partitions: Collection[TopicPartition]) -> None:
        """The reader reads exactly these."""
        self._shared.reads(self, partitions)

    def is_common(self, partition: TopicPartition) -> bool:
        """Another reader reads the partition, too."""
        return self._shared.is_common(partition)

    def claim(self, wanted: Sequence[Wanted], bytes_max: int, now_ms: int, wait_ms: int) -> Claim:
        """As `SharedReads.claim`."""
        claim = self._shared.claim(self._wake, wanted, bytes_max, now_ms, wait_ms)
        if claim.flight is not None:
            self._flights.add(claim.flight)
        return claim

    def end(self, flight: Flight, answers: Sequence[Part] | None, size: int = 0) -> None:
        """As `SharedReads.end`. A fetch that has ended already, because its reader has left, tells nothing more."""
        if flight in self._flights:
            self._flights.discard(flight)
            self._shared.end(flight, answers, size)

    def forget_old(self, now_ms: int) -> int:
        """As `SharedReads.forget_old`."""
        return self._shared.forget_old(now_ms)

    def leave(self) -> None:
        """Read nothing more: the others do not wait for this reader's fetches."""
        self.reads(())
        for flight in [*self._flights]:
            self.end(flight, None)


def parts_of(answer: Answer) -> list[Part]:
    """The parts of an answer to a fetch, in its order."""
    parts: list[Part] = []
    at = 0
    for entry in answer.partitions:
        length = int(entry.get("length", 0))
        parts.append((entry, answer.body[at : at + length]))
        at += length
    return parts


def _kept(flight: Flight, answers: Sequence[Part]) -> list[tuple[Place, Kept]]:
    """The answers without an error, and with no byte changed."""
    return [
        (wanted.place, Kept(wanted.offset, entry, data, flight.asked_ms))
        for wanted, (entry, data) in zip(flight.wanted, answers, strict=True)
        if "error" not in entry and _is_whole(data)
    ]


def _is_whole(data: memoryview) -> bool:
    try:
        return all(crc_is_valid(data, at, header) for at, header in walk(data))
    except PenstockError:
        return False


_shared: "weakref.WeakValueDictionary[tuple[int, Hashable], SharedReads]" = weakref.WeakValueDictionary()
_shared_lock = ProcessLock()


def shared_reads_of(reader: Hashable) -> SharedReads:
    """The shared reads of all clients of this process that have the same `reader`. A child by fork() shares anew."""
    with _shared_lock:
        key = (fork_count(), reader)
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = SharedReads()
        return shared
