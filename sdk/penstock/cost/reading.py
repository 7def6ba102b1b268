"""The produce requests that reach a topic, and the fetches of a group's members with the SDK's settings.

Requests come by chance, always the same one: an estimate does not change from call to call. A producer without keys
sticks to a partition for `TURN_BYTES`, so the readers of the other partitions get nothing from it meanwhile.

The members' own rhythm is played against them, as penstock.consumer.waiting has it. While a member is awake, each beat
fetches all its partitions that do not sleep. A partition that was empty for `SDK_EMPTY_FETCHES_MAX` fetches is armed
alone, and left out. A member that may sleep arms the others, too. A wake-up brings its partition back, by a fetch of
that partition at once.
"""

import hashlib
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

from penstock.cost.workload import ANSWER_MS, TURN_BYTES, Workload
from penstock.wake_ups.rhythm import Rhythm
from penstock_core.limits import (
    BATCH_BYTES_MAX,
    REQUEST_PARTITIONS_MAX,
    SDK_EMPTY_FETCHES_MAX,
    WAKE_UP_PARTITIONS_MAX,
)

ARRIVALS = 4_000  # of a played stream: the rates are good to a few percent
_PRODUCERS_MAX = 32  # that are played: more of them are as many as chance itself

Arrival = tuple[float, frozenset[int]]
"""Milliseconds from the begin on, and the partitions of the topic that get records."""
_MEMBERS_MAX = 8  # of a group that are played: the others are like them
_STEADY = 20.0  # produce requests to a partition in an interval: from then on, each fetch finds some
_CHANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The produce requests of one topic, from so many producers alike.

    Each request brings `records` to the topic. `pause_ms` is the shortest time between two requests of a producer.
    Without keys, they go to one partition, which is another one after `turn` requests.
    """

    requests_per_s: float
    partitions: int
    producers: int
    records: float
    pause_ms: float
    turn: float
    has_keys: bool

    def scaled(self, share: float, partitions: int) -> "Stream":
        """That share of the stream, to so many partitions."""
        if not self.has_keys:
            producers = max(1, round(self.producers * share))
            return replace(self, requests_per_s=self.requests_per_s * share, producers=producers, partitions=partitions)
        touches = 1 - (1 - share) ** self.records
        return replace(
            self,
            requests_per_s=self.requests_per_s * touches,
            records=self.records * share / touches,
            partitions=partitions,
        )


def stream_of(workload: Workload) -> Stream:
    """The stream of one of the workload's topics."""
    touches = workload.topics_per_request / workload.topics
    records = max(1.0, workload.records_per_request / workload.topics_per_request)
    per_turn = TURN_BYTES / (records * workload.record_bytes)
    is_crowd = workload.producers > _PRODUCERS_MAX
    return Stream(
        requests_per_s=workload.requests_per_s * touches,
        partitions=workload.partitions,
        producers=min(workload.producers, _PRODUCERS_MAX),
        records=records,
        pause_ms=0.0 if is_crowd or workload.request_bytes is not None else workload.linger_ms,
        turn=1.0 if is_crowd else max(1.0, per_turn),
        has_keys=workload.has_keys,
    )


def arrivals(stream: Stream, count: int = ARRIVALS) -> Sequence[Arrival]:
    """The first requests of the stream, in order."""
    chances = _chances()
    mean_ms = 1_000 * stream.producers / stream.requests_per_s
    pause_ms = min(stream.pause_ms, mean_ms)
    nexts = [(next(chances) * mean_ms, producer) for producer in range(stream.producers)]
    heapq.heapify(nexts)
    partition = [int(next(chances) * stream.partitions) for _ in nexts]
    left = [next(chances) * stream.turn for _ in nexts]
    found: list[Arrival] = []
    while len(found) < count:
        now_ms, producer = nexts[0]
        if stream.has_keys:
            records = int(stream.records + next(chances))
            found.append((now_ms, frozenset(int(next(chances) * stream.partitions) for _ in range(max(1, records)))))
        else:
            if left[producer] <= 0:
                partition[producer], left[producer] = int(next(chances) * stream.partitions), stream.turn
            left[producer] -= 1
            found.append((now_ms, frozenset((partition[producer],))))
        gap_ms = pause_ms - math.log(1.0 - next(chances)) * (mean_ms - pause_ms)
        heapq.heapreplace(nexts, (now_ms + gap_ms, producer))
    return found


def _chances() -> Iterator[float]:
    """Uniform in [0, 1)."""
    for number in itertools.count():
        mixed = hashlib.blake2b(b"%d" % number).digest()
        for at in range(0, len(mixed), 4):
            yield int.from_bytes(mixed[at : at + 4], "big") / 2**32


@dataclass(frozen=True, slots=True)
class Reads:
    """The fetches of a group's members a second: those that find records, those that find none, and those that arm.

    `asked_*` are the partitions that these ask for, all together. `segments` are the produce requests that are found,
    `armed` the heads that are written, `messages` the wake-ups.
    """

    found: float = 0.0
    asked_found: float = 0.0
    segments: float = 0.0
    empty: float = 0.0
    asked_empty: float = 0.0
    arming: float = 0.0
    asked_arming: float = 0.0
    armed: float = 0.0
    messages: float = 0.0

    @property
    def fetches(self) -> float:
        """All of them."""
        return self.found + self.empty + self.arming

    def times(self, factor: float) -> "Reads":
        """So many times as much of all."""
        return Reads(*(each * factor for each in astuple(self)))

    def plus(self, other: "Reads") -> "Reads":
        """The sums of both."""
        return Reads(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def reads_per_s(workload: Workload) -> Reads:
    """The fetches of all members of all groups of one topic a second, while records come.

    The groups have as many members as a share of all gives them, so some have one more.
    """
    if not (workload.records_per_s and workload.groups):
        return Reads()
    stream, fewest = stream_of(workload), workload.all_members // workload.all_groups
    larger = workload.all_members / workload.all_groups - fewest
    reads = _of_group(stream, fewest, workload.fetch_interval_ms).times(1 - larger)
    if larger:
        reads = reads.plus(_of_group(stream, fewest + 1, workload.fetch_interval_ms).times(larger))
    cut = workload.bytes_per_s / workload.topics / BATCH_BYTES_MAX  # a fetch that was cut is followed at once
    if reads.found < cut:
        reads = Reads(**{**_fields(reads), "found": cut, "asked_found": reads.asked_found * cut / reads.found})
    return reads.times(workload.groups)


def _fields(reads: Reads) -> dict[str, float]:
    return {name: getattr(reads, name) for name in Reads.__slots__}


def _of_group(stream: Stream, members: int, interval_ms: float) -> Reads:
    """The fetches of one group's members a second. Those without a partition fetch nothing."""
    readers = min(members, stream.partitions)
    each = stream.partitions / readers  # the partitions of a member
    rate = stream.requests_per_s
    if interval_ms < 1:
        return _by_long_polls(rate / readers, each).times(readers)
    if rate / stream.partitions * interval_ms / 1_000 >= _STEADY:
        found = readers * 1_000 / max(ANSWER_MS, 1.05 * interval_ms)
        touched = rate * min(readers, stream.records if stream.has_keys else 1)
        return Reads(found=found, asked_found=found * each, segments=max(found, touched))
    played = min(readers, _MEMBERS_MAX)
    requests = math.ceil(each / REQUEST_PARTITIONS_MAX)  # of a beat: one asks for so many partitions at most
    share = played / readers / requests
    part = stream.scaled(share, max(played, round(stream.partitions * share)))
    return _played(part, played, int(interval_ms)).times(readers / played * requests)


def _by_long_polls(rate: float, partitions: float) -> Reads:
    """A busy member asks again as soon as it has an answer.

    At the end of its partitions it waits to be woken: the chance of that is that no request comes for the time of an
    answer.
    """
    answers = 1_000 / ANSWER_MS
    found, sleeps = min(rate, answers), rate * math.exp(-rate / answers)
    return Reads(
        found=found,
        asked_found=found * partitions,
        segments=rate,
        arming=sleeps,
        asked_arming=sleeps * partitions,
        armed=sleeps,
        messages=sleeps,
    )


@lru_cache
def _played(stream: Stream, members: int, interval_ms: int) -> Reads:
    """The fetches of so many members that share the partitions, a second."""
    coming = arrivals(stream)
    reads = Reads()
    for number in range(members):
        own = frozenset(range(number, stream.partitions, members))
        member = _Member(own, interval_ms)
        member.play([(at_ms, got & own) for at_ms, got in coming if got & own], coming[-1][0])
        reads = reads.plus(member.reads())
    return reads.times(1_000 / coming[-1][0])


class _Member:
    """One member, from the first request of a stream to the last."""

    def __init__(self, partitions: frozenset[int], interval_ms: int) -> None:
        self._rhythm = Rhythm(interval_ms)
        self._awake = dict.fromkeys(sorted(partitions), 0)  # with the empty fetches of each in a row
        self._waiting: list[frozenset[int]] = []  # requests whose records are not fetched yet
        self._woken: frozenset[int] = frozenset()  # partitions that a wake-up has named
        self._now_ms = 0.0
        self._found = self._asked_found = self._segments = 0
        self._empty = self._asked_empty = 0
        self._arming = self._armed = self._messages = 0

    def reads(self) -> Reads:
        """The sums of all fetches."""
        return Reads(
            found=self._found,
            asked_found=self._asked_found,
            segments=self._segments,
            empty=self._empty,
            asked_empty=self._asked_empty,
            arming=self._arming,
            asked_arming=self._armed,
            armed=self._armed,
            messages=self._messages,
        )

    def play(self, coming: Sequence[Arrival], end_ms: float) -> None:
        """Fetches whenever a member would, while the requests come."""
        at = 0
        while self._now_ms < end_ms:
            while at < len(coming) and coming[at][0] <= self._now_ms:
                self._take(coming[at][1])
                at += 1
            if self._woken:
                self._fetch_woken()
                continue
            fetch_ms = self._fetch_ms()
            next_ms = coming[at][0] if at < len(coming) else end_ms
            if next_ms <= fetch_ms:
                self._now_ms = next_ms
            else:
                self._now_ms = max(self._now_ms, fetch_ms)
                self._fetch()

    def _take(self, partitions: frozenset[int]) -> None:
        woken = partitions - self._awake.keys() - self._woken
        self._messages += len(woken) if len(woken) <= WAKE_UP_PARTITIONS_MAX else 1
        self._woken |= woken
        self._waiting.append(partitions)

    def _fetch_ms(self) -> float:
        """The time of the next fetch that no wake-up asks for."""
        if not self._awake:
            return math.inf
        is_awake = self._rhythm.is_awake(len(self._awake))
        return self._rhythm.next_ms if is_awake else self._rhythm.arms_ms(len(self._awake))

    def _fetch_woken(self) -> None:
        woken, self._woken = self._woken, frozenset()
        rests = [partitions - woken for partitions in self._waiting]
        segments = sum(rest != partitions for rest, partitions in zip(rests, self._waiting, strict=True))
        self._waiting = [rest for rest in rests if rest]
        self._awake |= dict.fromkeys(woken, 0)
        self._find(len(woken), segments, len(woken))

    def _fetch(self) -> None:
        """A beat, or the fetch that arms."""
        has_records = frozenset().union(*self._waiting)
        if self._rhythm.is_awake(len(self._awake)):
            full = SDK_EMPTY_FETCHES_MAX
            brief = [each for each, empty in self._awake.items() if empty >= full and each not in has_records]
        else:
            brief = [] if has_records else [*self._awake]
        if brief:
            self._arming, self._armed = self._arming + 1, self._armed + len(brief)
            for each in brief:
                del self._awake[each]
            self._now_ms += ANSWER_MS
            return
        for each in self._awake:
            self._awake[each] = 0 if each in has_records else self._awake[each] + 1
        segments, self._waiting = len(self._waiting), []
        if has_records:
            self._find(len(self._awake), segments, len(has_records))
            return
        self._empty, self._asked_empty = self._empty + 1, self._asked_empty + len(self._awake)
        self._answer(0)

    def _find(self, asked: int, segments: int, partitions: int) -> None:
        self._found, self._asked_found = self._found + 1, self._asked_found + asked
        self._segments += segments
        self._answer(partitions)

    def _answer(self, found: int) -> None:
        if self._rhythm.next_ms <= self._now_ms:
            self._rhythm.asked(int(self._now_ms))
        self._now_ms += ANSWER_MS
        self._rhythm.answered(len(self._awake), found, now_ms=int(self._now_ms), chance=_CHANCE)
