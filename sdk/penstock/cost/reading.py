"""The requests of a consumer with the SDK's settings: its own rhythm, played against records that come by chance."""

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from penstock.cost.workload import ANSWER_MS, Workload
from penstock.wake_ups.rhythm import Rhythm
from penstock_core.limits import BATCH_BYTES_MAX

_ARRIVALS = 4_000  # of a played stream: the rates are good to a few percent
_STEADY = 20.0  # produce requests in an interval: from then on, each fetch finds some


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The requests of one consumer a second: fetches that find records, fetches that find none, and sleeps."""

    found: float
    empty: float
    sleeps: float

    @property
    def fetches(self) -> float:
        """All of them: before each sleep, one arms."""
        return self.found + self.empty + self.sleeps


def reads_per_s(workload: Workload) -> Reads:
    """The requests of one consumer of all records."""
    requests, partitions = workload.requests_per_s, workload.partitions
    if not requests:
        return Reads(found=0.0, empty=0.0, sleeps=0.0)
    cut = workload.bytes_per_s / BATCH_BYTES_MAX  # a fetch that was cut is followed at once
    if workload.fetch_interval_ms < 1:
        return _by_long_polls(requests, cut)
    found, empty, sleeps = _played(requests, partitions, int(workload.fetch_interval_ms))
    return Reads(found=max(found, cut), empty=empty, sleeps=sleeps)


def _by_long_polls(requests: float, cut: float) -> Reads:
    """A busy consumer asks again as soon as it has an answer.

    At the end of the topic it waits to be woken: the chance of that is that no request comes for the time of an answer.
    """
    answers = 1_000 / ANSWER_MS
    return Reads(found=max(min(requests, answers), cut), empty=0.0, sleeps=requests * math.exp(-requests / answers))


@lru_cache
def _played(requests_per_s: float, partitions: int, interval_ms: int) -> tuple[float, float, float]:
    """Fetches that find something, that find nothing, and sleeps, a second. Requests of producers come by chance."""
    if requests_per_s * interval_ms / 1_000 >= _STEADY:
        return 1_000 / max(ANSWER_MS, 1.05 * interval_ms), 0.0, 0.0
    rhythm, gaps_ms = Rhythm(interval_ms), _gaps_ms(requests_per_s)
    found = empty = sleeps = 0
    now_ms, comes_ms, arrivals = 0.0, next(gaps_ms), 0
    while arrivals < _ARRIVALS:
        has_records = comes_ms <= now_ms
        if not (has_records or rhythm.is_awake(partitions)):  # it arms, and sleeps
            sleeps += 1
            now_ms, has_records = comes_ms, True
        rhythm.asked(int(now_ms))
        found, empty = found + has_records, empty + (not has_records)
        while comes_ms <= now_ms:
            arrivals += 1
            comes_ms += next(gaps_ms)
        rhythm.answered(partitions, int(has_records), now_ms=int(now_ms), chance=0.5)
        if rhythm.is_awake(partitions):
            now_ms = max(now_ms + ANSWER_MS, rhythm.next_ms)
        else:
            now_ms += ANSWER_MS
    seconds = now_ms / 1_000
    return found / seconds, empty / seconds, sleeps / seconds


def _gaps_ms(requests_per_s: float) -> Iterator[float]:
    """Exponential gaps, always the same ones: an estimate does not change from call to call."""
    for number in itertools.count():
        mixed = hashlib.blake2b(b"%d" % number, digest_size=4).digest()
        share = (int.from_bytes(mixed, "big") + 0.5) / 2**32
        yield -math.log(share) / requests_per_s * 1_000
