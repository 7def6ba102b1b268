"""Reads stored files into a summary. All work is done on columns, without a Python object for a row.

```
 hours/ ──8 files at a time──┬─> a number per partition and hour ────────────┐
                             ├─> histograms, added up by topic and hour      ├─> a TopicSummary per topic
                             └─> top keys, added up; of each topic the first ┘
 lag/   ──the latest files───> records and ms, added up by run and group ──────> LagTrend
```
"""

import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_spark.analysis.hourly import read_hour
from penstock_spark.analysis.lag import LAG
from penstock_spark.analysis.measure import HOUR_MS
from penstock_spark.analysis.summary import Histogram, Key, LagTrend, Summary, TopicSummary
from penstock_spark.result_store import ResultStore

_FILES_AT_ONCE = 8  # threads, and files in memory
_KEYS_HELD = 500  # of each topic; a report shows a few of them
_NUMBERS = ("partition", "records", "bytes", "null_keys", "tombstones", "size_max", "topic_partitions", "keys")
_COLUMNS = ("topic", *_NUMBERS, "size_histogram", "append_lag_histogram", "top_keys")
_KEY = ("topic", "partition", "key", "key_bytes")


def summarize(
    results: ResultStore,
    *,
    from_ms: int,
    to_ms: int,
    topics: Mapping[str, int],
    only: Collection[str],
    lags: pa.Table,
    runs_max: int,
) -> Summary:
    """Summarize the stored hours of `[from_ms, to_ms)`.

    `topics` are the existing topics, with their numbers of partitions. With `only`, the summary covers no other topics.
    `lags` are those of this run. Costs a get for each hour, and for each of the last `runs_max` files of lags.
    """
    hours_ms = range(from_ms // HOUR_MS * HOUR_MS, to_ms, HOUR_MS)
    counted = _HourTotals()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for at in range(0, len(hours_ms), _FILES_AT_ONCE):
            block = hours_ms[at : at + _FILES_AT_ONCE]
            tables = pool.map(lambda hour_ms: read_hour(results, hour_ms), block)
            for hour_ms, table in zip(block, tables, strict=True):
                if table is not None:
                    counted.add(hour_ms, _of(table, only))
            counted.forget_rare_keys()
    hours = counted.hours()
    gathered = counted.topics(hours, topics)
    return Summary(
        hours_ms=hours,
        only=sorted(only),
        topics=sorted(gathered, key=lambda each: (-each.bytes, each.name)),
        empty_topics=sorted(topics.keys() - {each.name for each in gathered}),
        append_lags_by_hour=counted.append_lags_by_hour(),
        lags=_of(lags, only).to_pylist(),
        trend=_trend(results, only, runs_max),
    )


@dataclass(slots=True, kw_only=True)
class _HourTotals:
    """The hours read so far, as tables."""

    rows: list[pa.Table] = field(default_factory=list)  # hour_ms, topic and _NUMBERS
    sizes: list[pa.Table] = field(default_factory=list)  # hour_ms, topic, bucket, records
    append_lags: list[pa.Table] = field(default_factory=list)  # the same
    keys: list[pa.Table] = field(default_factory=list)  # _KEY, records

    def add(self, hour_ms: int, table: pa.Table) -> None:
        """Add an hour's table."""
        table = table.select(_COLUMNS).combine_chunks()
        if not len(table):
            return
        self.rows.append(_with_hour(table.select(["topic", *_NUMBERS]), hour_ms))
        for held, column in ((self.sizes, "size_histogram"), (self.append_lags, "append_lag_histogram")):
            entries = _exploded(table.select(["topic", column]), ("bucket", "records"))
            held.append(_with_hour(_added_up(entries, ("topic", "bucket")), hour_ms))
        self.keys.append(_exploded(table.select(["topic", "partition", "top_keys"]), ("key", "key_bytes", "records")))

    def forget_rare_keys(self) -> None:
        """Add up the keys, and keep the most frequent ones of each topic. Bounds the memory."""
        if not self.keys:
            return
        keys = _added_up(pa.concat_tables(self.keys), _KEY)
        topic = keys.column("topic").combine_chunks().dictionary_encode().indices.to_numpy()
        order = np.lexsort((-keys.column("records").to_numpy(), topic))
        rank = np.arange(len(order)) - np.searchsorted(topic[order], topic[order])
        self.keys = [keys.take(order[rank < _KEYS_HELD])]

    def hours(self) -> Sequence[int]:
        """The hours from the first to the last with records."""
        found = [int(table.column("hour_ms")[0].as_py()) for table in self.rows]
        return range(min(found), max(found) + 1, HOUR_MS) if found else ()

    def topics(self, hours: Sequence[int], partitions: Mapping[str, int]) -> list[TopicSummary]:
        """A summary of each topic with records. `partitions` holds the numbers of partitions of the existing topics."""
        if not self.rows:
            return []
        sizes, lags = (_histograms(pa.concat_tables(each), "topic") for each in (self.sizes, self.append_lags))
        keys = pa.concat_tables(self.keys)
        keys_of = defaultdict(lambda: keys.slice(0, 0), _by_topic(keys))
        return [
            _topic(name, rows, hours, partitions.get(name, 1), sizes[name], lags[name], keys_of[name])
            for name, rows in _by_topic(pa.concat_tables(self.rows))
        ]

    def append_lags_by_hour(self) -> dict[int, Histogram]:
        """The histogram of append lags of each hour."""
        return dict(_histograms(pa.concat_tables(self.append_lags), "hour_ms")) if self.append_lags else {}


def _topic(
    name: str, rows: pa.Table, hours: Sequence[int], exist: int, sizes: Histogram, lags: Histogram, keys: pa.Table
) -> TopicSummary:
    """The summary of one topic.

    It has room for all partitions that the topic has or had: a topic that was deleted and created again may have fewer.
    """
    number = {column: rows.column(column).to_numpy() for column in ("hour_ms", *_NUMBERS)}
    hour = (number["hour_ms"] - hours[0]) // HOUR_MS
    partitions = int(max(exist, number["topic_partitions"].max(), number["partition"].max() + 1))
    partition_bytes = np.zeros((partitions, len(hours)))
    partition_bytes[number["partition"], hour] = number["bytes"]
    held = zip(*(keys.column(each).to_pylist() for each in ("partition", "key", "key_bytes", "records")), strict=True)
    return TopicSummary(
        name=name,
        partitions=partitions,
        records_by_hour=np.bincount(hour, number["records"], len(hours)).astype(np.float64),
        partition_bytes=partition_bytes,
        partition_records=np.bincount(number["partition"], number["records"], partitions).astype(np.float64),
        null_keys=int(number["null_keys"].sum()),
        tombstones=int(number["tombstones"].sum()),
        size_max=int(number["size_max"].max()),
        keys_per_hour_max=int(np.bincount(hour, number["keys"]).max()),
        sizes=sizes,
        append_lags=lags,
        key_records={Key(partition=at, prefix=key, length=length): records for at, key, length, records in held},
    )


def _trend(results: ResultStore, only: Collection[str], runs_max: int) -> LagTrend:
    names = sorted(results.names(LAG))[-runs_max:]
    runs: list[tuple[int, dict[str, int], dict[str, int]]] = []
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for data in pool.map(lambda name: results.get(LAG + name), names):
            table = pq.read_table(io.BytesIO(data)) if data is not None else pa.table({})
            if len(table):
                run_ms = table.column("run_at")[0].cast(pa.int64()).as_py()
                table = _of(table, only).filter(pc.field("lag_records").is_valid())
                found = table.group_by("group").aggregate([("lag_records", "sum"), ("lag_ms", "max")])
                columns = [found.column(each).to_pylist() for each in ("group", "lag_records_sum", "lag_ms_max")]
                groups, records, waits = columns
                runs.append((run_ms, dict(zip(groups, records, strict=True)), dict(zip(groups, waits, strict=True))))
    named = sorted({group for _, records, _ in runs for group in records})
    return LagTrend(
        runs_ms=[run_ms for run_ms, _, _ in runs],
        records={group: [records.get(group) for _, records, _ in runs] for group in named},
        lag_ms={group: [waits.get(group) for _, _, waits in runs] for group in named},
    )


def _of(table: pa.Table, only: Collection[str]) -> pa.Table:
    return table.filter(pc.is_in(table.column("topic"), pa.array(sorted(only), pa.string()))) if only else table


def _exploded(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """A row for each entry of the lists, or maps, in the last column. The entry's first parts get these names."""
    lists = table.column(-1).combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # an older pyarrow keeps several chunks
        lists = lists.chunk(0)
    ends = lists.offsets.to_numpy()
    entries = lists.values.slice(ends[0], ends[-1] - ends[0])
    exploded = table.select(table.column_names[:-1]).take(np.repeat(np.arange(len(lists)), np.diff(ends)))
    for index, name in enumerate(names):
        exploded = exploded.append_column(name, entries.field(index))
    return exploded


def _with_hour(table: pa.Table, hour_ms: int) -> pa.Table:
    return table.append_column("hour_ms", pa.repeat(pa.scalar(hour_ms, pa.int64()), len(table)))


def _added_up(table: pa.Table, by: Sequence[str]) -> pa.Table:
    """The sum of `records` for each combination of the columns `by`."""
    return table.group_by(list(by)).aggregate([("records", "sum")]).rename_columns([*by, "records"])


def _histograms(entries: pa.Table, by: str) -> dict[Any, Histogram]:
    """One histogram for each topic, or each hour. Missing ones are empty."""
    found: dict[Any, Histogram] = defaultdict(Counter)
    added_up = _added_up(entries, (by, "bucket"))
    for name, bucket, records in zip(*(each.to_pylist() for each in added_up.columns), strict=True):
        found[name][bucket] = records
    return found


def _by_topic(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each topic."""
    names = table.column("topic").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    table = table.take(order)
    bounds = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    for index, name in enumerate(names.dictionary.to_pylist()):
        yield name, table.slice(bounds[index], bounds[index + 1] - bounds[index])
