"""Stored files to what a report shows. One hour's file is held at a time; what is kept of it is small.

For each partition and hour one number is kept, its bytes; for each topic a few hundred of its keys.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock_spark.analysis.folder import Folder
from penstock_spark.analysis.histogram import Histogram, add_column
from penstock_spark.analysis.hourly import HOURS, hour_name, read_hour
from penstock_spark.analysis.lag import LAG
from penstock_spark.analysis.measure import HOUR_MS

HOT_HEAT = 2.0
HOT_RECORDS_MIN = 1_000  # below, chance alone makes partitions uneven
_RECENT_HOURS = 24
_KEYS_HELD = 500

Numbers: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Key:
    """A key of one partition: its first bytes and its length."""

    partition: int
    prefix: bytes
    length: int


@dataclass(slots=True, kw_only=True)
class TopicSummary:
    """One topic over all hours of the report; arrays have an element per hour, `partition_bytes` a row per
    partition."""

    name: str
    partitions: int
    records_by_hour: Numbers
    partition_bytes: Numbers
    partition_records: Numbers
    null_keys: int = 0
    tombstones: int = 0
    size_max: int = 0
    keys_per_hour_max: int = 0
    sizes: Histogram = field(default_factory=Counter)
    append_lags: Histogram = field(default_factory=Counter)
    key_records: "Counter[Key]" = field(default_factory=Counter)

    @property
    def bytes_by_hour(self) -> Numbers:
        return np.asarray(self.partition_bytes.sum(axis=0))

    @property
    def records(self) -> int:
        return int(self.records_by_hour.sum())

    @property
    def bytes(self) -> int:
        return int(self.partition_bytes.sum())

    @property
    def keyed_records(self) -> int:
        return self.records - self.null_keys

    @property
    def heat(self) -> Numbers:
        """Of each partition: its bytes by the mean of all partitions of the topic, over all hours or over the last day,
        whichever is more."""
        return np.maximum(self._heat(self.partition_bytes), self._heat(self.partition_bytes[:, -_RECENT_HOURS:]))

    @property
    def hot_partitions(self) -> list[int]:
        """Hottest first."""
        heat = self.heat
        is_hot = (heat >= HOT_HEAT) & (self.partition_records >= HOT_RECORDS_MIN)
        return sorted((int(each) for each in np.flatnonzero(is_hot)), key=lambda each: -float(heat[each]))

    @property
    def hourly_heat(self) -> Numbers:
        """A row per partition; NaN in hours without bytes."""
        totals = self.bytes_by_hour
        return self.partition_bytes * self.partitions / np.where(totals > 0, totals, np.nan)

    def top_keys(self, count: int, partition: int | None = None) -> list[tuple[Key, int]]:
        """Keys with most records first. They had these many at least: hours count their ten top keys only."""
        found = [(key, n) for key, n in self.key_records.items() if partition is None or key.partition == partition]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _heat(self, partition_bytes: Numbers) -> Numbers:
        return np.asarray(partition_bytes.sum(axis=1) * self.partitions / max(1, partition_bytes.sum()))

    @property
    def top_key_share(self) -> float:
        top = self.top_keys(1)
        return top[0][1] / self.keyed_records if top and self.keyed_records else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTrend:
    """The lag of groups, run by run: the sum of their partitions, None for a group that a run did not see."""

    runs_ms: Sequence[int]
    records: Mapping[str, Sequence[int | None]]
    lag_ms: Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All that a report shows. `topics` have records, largest first; `empty_topics` have none in these hours."""

    hours_ms: Sequence[int]
    topics: Sequence[TopicSummary]
    empty_topics: Sequence[str]
    append_lags_by_hour: Mapping[int, Histogram]
    lags: Sequence[Mapping[str, Any]]
    trend: LagTrend


def summarize(
    folder: Folder, *, from_ms: int, to_ms: int, topics: Mapping[str, int], lags: pa.Table, runs_max: int
) -> Summary:
    """The hours of `[from_ms, to_ms)` that there are files of; `topics` are those that exist, with their partitions;
    `lags` those of this run. Reads each hour's file, and the last `runs_max` files of lags."""
    names = {hour_name(hour_ms): hour_ms for hour_ms in range(from_ms // HOUR_MS * HOUR_MS, to_ms, HOUR_MS)}
    found = [names[name] for name in folder.names(HOURS) if name in names]
    hours = list(range(min(found), max(found) + 1, HOUR_MS)) if found else []
    gathered: dict[str, TopicSummary] = {}
    lags_by_hour: dict[int, Histogram] = {}
    for hour_ms in sorted(found):
        table = read_hour(folder, hour_name(hour_ms))
        if table is not None:
            _add_hour(gathered, table, hours.index(hour_ms), len(hours), topics)
            everything: dict[str, Histogram] = {"all": Counter()}
            add_column(everything, ["all"] * len(table), table.column("append_lag_histogram"))
            lags_by_hour[hour_ms] = everything["all"]
    return Summary(
        hours_ms=hours,
        topics=sorted(gathered.values(), key=lambda each: (-each.bytes, each.name)),
        empty_topics=sorted(topics.keys() - gathered.keys()),
        append_lags_by_hour=lags_by_hour,
        lags=lags.to_pylist(),
        trend=_trend(folder, runs_max),
    )


def _add_hour(
    gathered: dict[str, TopicSummary], table: pa.Table, index: int, hours: int, topics: Mapping[str, int]
) -> None:
    columns = ("topic", "partition", "records", "bytes", "null_keys", "tombstones", "size_max", "topic_partitions")
    keys: dict[str, int] = defaultdict(int)
    names = table.column("topic").to_pylist()
    for row in table.select([*columns, "keys", "top_keys"]).to_pylist():
        topic = _topic(gathered, row, hours, topics)
        topic.records_by_hour[index] += row["records"]
        topic.partition_records[row["partition"]] += row["records"]
        topic.partition_bytes[row["partition"], index] += row["bytes"]
        topic.null_keys += row["null_keys"]
        topic.tombstones += row["tombstones"]
        topic.size_max = max(topic.size_max, row["size_max"])
        keys[topic.name] += row["keys"]
        for top in row["top_keys"] or ():
            key = Key(partition=row["partition"], prefix=top["key"], length=top["key_bytes"])
            topic.key_records[key] += top["records"]
    for name, count in keys.items():
        gathered[name].keys_per_hour_max = max(gathered[name].keys_per_hour_max, count)
        if len(gathered[name].key_records) > 2 * _KEYS_HELD:
            gathered[name].key_records = Counter(dict(gathered[name].key_records.most_common(_KEYS_HELD)))
    add_column({each.name: each.sizes for each in gathered.values()}, names, table.column("size_histogram"))
    add_column({each.name: each.append_lags for each in gathered.values()}, names, table.column("append_lag_histogram"))


def _topic(
    gathered: dict[str, TopicSummary], row: Mapping[str, Any], hours: int, topics: Mapping[str, int]
) -> TopicSummary:
    """The row's topic, with room for its partition: a topic may have got partitions, or lost them by a new life."""
    name = row["topic"]
    wanted = max(row["topic_partitions"], row["partition"] + 1, topics.get(name, 1))
    topic = gathered.get(name)
    if topic is None:
        topic = gathered[name] = TopicSummary(
            name=name,
            partitions=wanted,
            records_by_hour=np.zeros(hours),
            partition_bytes=np.zeros((wanted, hours)),
            partition_records=np.zeros(wanted),
        )
    if topic.partitions < wanted:
        more = wanted - topic.partitions
        topic.partition_bytes = np.pad(topic.partition_bytes, ((0, more), (0, 0)))
        topic.partition_records = np.pad(topic.partition_records, (0, more))
        topic.partitions = wanted
    return topic


def _trend(folder: Folder, runs_max: int) -> LagTrend:
    runs: list[tuple[int, dict[str, int], dict[str, int]]] = []
    for name in list(folder.names(LAG))[-runs_max:]:
        table = pq.read_table(io.BytesIO(folder.get(name) or b""))
        records: dict[str, int] = defaultdict(int)
        lag_ms: dict[str, int] = defaultdict(int)
        for row in table.select(["group", "lag_records", "lag_ms"]).to_pylist():
            if row["lag_records"] is not None:
                records[row["group"]] += row["lag_records"]
                lag_ms[row["group"]] = max(lag_ms[row["group"]], row["lag_ms"] or 0)
        if len(table):
            runs.append((int(table.column("run_at")[0].as_py().timestamp() * 1000), records, lag_ms))
    groups = sorted({group for _, records, _ in runs for group in records})
    return LagTrend(
        runs_ms=[run_ms for run_ms, _, _ in runs],
        records=_by_group(groups, [records for _, records, _ in runs]),
        lag_ms=_by_group(groups, [lag_ms for _, _, lag_ms in runs]),
    )


def _by_group(groups: Iterable[str], runs: Sequence[Mapping[str, int]]) -> dict[str, list[int | None]]:
    return {group: [run.get(group) for run in runs] for group in groups}
