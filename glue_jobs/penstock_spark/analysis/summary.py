"""The content of a report: each topic over all its hours, and the groups over the runs (summarize.py).

A summary holds one number for each partition and hour, its bytes, and a few hundred keys for each topic.

Histograms whose buckets grow by a fourth of a doubling (measure.py). You can add them up and take percentiles.

Formats numbers for people.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock_spark.analysis.measure import bucket_start

HOT_HEAT = 2.0
HOT_RECORDS_MIN = 1_000  # with fewer records, chance alone makes partitions uneven
_RECENT_HOURS = 24
Numbers: TypeAlias = npt.NDArray[np.float64]
Histogram: TypeAlias = Counter[int]
_COUNTS = ("", "k", "M", "G", "T")
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_NAME_MAX = 32
_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """A key of one partition: its first bytes and its length."""

    partition: int
    prefix: bytes
    length: int


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """The value that `percent` per cent of all values do not exceed. None without values.

    It is exact to within a bucket's width (19%).
    """
    total = sum(histogram.values())
    if not total:
        return None
    rank, below = total * percent / 100, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if below + count >= rank:
            start, end = bucket_start(bucket), bucket_start(bucket + 1) if bucket >= 0 else 0.0
            return start + (end - start) * (rank - below) / count
        below += count
    return bucket_start(max(histogram) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """One topic over all hours of the report.

    Arrays have an element per hour. `partition_bytes` has a row per partition.
    """

    name: str
    partitions: int
    records_by_hour: Numbers
    partition_bytes: Numbers
    partition_records: Numbers
    null_keys: int
    tombstones: int
    size_max: int
    keys_per_hour_max: int
    sizes: Histogram
    append_lags: Histogram
    key_records: Mapping[Key, int]

    @property
    def bytes_by_hour(self) -> Numbers:
        """The topic's bytes, hour by hour."""
        return np.asarray(self.partition_bytes.sum(axis=0))

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.records_by_hour.sum())

    @property
    def bytes(self) -> int:
        """The number of bytes."""
        return int(self.partition_bytes.sum())

    @property
    def keyed_records(self) -> int:
        """The number of records with a key."""
        return self.records - self.null_keys

    @property
    def heat(self) -> Numbers:
        """The heat of each partition: its bytes as a multiple of the mean of all partitions of the topic.

        The greater of two figures counts: over all hours, or over the last day.
        """
        return np.maximum(self._heat(self.partition_bytes), self._heat(self.partition_bytes[:, -_RECENT_HOURS:]))

    @property
    def hot_partitions(self) -> list[int]:
        """The hot partitions, the hottest first."""
        heat = self.heat
        is_hot = (heat >= HOT_HEAT) & (self.partition_records >= HOT_RECORDS_MIN)
        return sorted((int(each) for each in np.flatnonzero(is_hot)), key=lambda each: -float(heat[each]))

    @property
    def hourly_heat(self) -> Numbers:
        """The heat of each partition, hour by hour: a row per partition. NaN in hours without bytes."""
        totals = self.bytes_by_hour
        return self.partition_bytes * self.partitions / np.where(totals > 0, totals, np.nan)

    def top_keys(self, count: int, partition: int | None = None) -> list[tuple[Key, int]]:
        """The keys with the most records first, each with a lower bound of its records.

        An hour counts only its ten top keys.
        """
        found = [(key, n) for key, n in self.key_records.items() if partition is None or key.partition == partition]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _heat(self, partition_bytes: Numbers) -> Numbers:
        return np.asarray(partition_bytes.sum(axis=1) * self.partitions / max(1, partition_bytes.sum()))

    @property
    def top_key_share(self) -> float:
        """The share of the keyed records that have the most frequent key."""
        top = self.top_keys(1)
        return top[0][1] / self.keyed_records if top and self.keyed_records else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTrend:
    """The lag of groups, run by run: the sum over their partitions, None for a group that the run did not see."""

    runs_ms: Sequence[int]
    records: Mapping[str, Sequence[int | None]]
    lag_ms: Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The content of a report.

    `topics` have records, the largest first; `empty_topics` have none in these hours. `only` names the topics that the
    user asked for, and is empty for all.
    """

    hours_ms: Sequence[int]
    only: Sequence[str]
    topics: Sequence[TopicSummary]
    empty_topics: Sequence[str]
    append_lags_by_hour: Mapping[int, Histogram]
    lags: Sequence[Mapping[str, Any]]
    trend: LagTrend


def shorten(name: str) -> str:
    """A name for a small space: the start and the end of a long name."""
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 9]}…{name[-8:]}"


def format_count(value: float) -> str:
    """Such as `950`, `1.2k`, `35M`."""
    return _scaled(value, 1000, _COUNTS, "")


def format_bytes(value: float, base: int = 1000) -> str:
    """Such as `950 B`, `1.2 kB`; with base 1,024 `1.2 KiB`."""
    return _scaled(value, base, _BYTES if base == 1000 else _BINARY, " ")


def format_ms(value: float | None) -> str:
    """Such as `120 ms`, `3.5 s`, `2.1 h`; `–` for None."""
    if value is None:
        return "–"
    for unit_ms, unit in _TIMES:
        if abs(value) >= unit_ms:
            return f"{_short(value / unit_ms)} {unit}"
    return f"{_short(value)} ms"


def format_percent(share: float) -> str:
    """Such as `12%`, `0.4%`."""
    percent = share * 100
    return f"{percent:.0f}%" if percent >= 10 or percent == 0 else f"{percent:.1f}%" if percent >= 0.1 else "<0.1%"


def _scaled(value: float, base: int, units: tuple[str, ...], gap: str) -> str:
    step = 0
    while abs(value) >= base and step < len(units) - 1:
        value, step = value / base, step + 1
    return f"{_short(value)}{gap}{units[step]}".strip() if units[step] else _short(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
