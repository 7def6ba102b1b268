"""Turns measured records into a row per topic, partition and hour, and these rows into one file per hour.

```
 measured ─┬─ group ──────────────────────> counts, bytes, percentiles ─┐
           ├─ group by bucket ─> group ───> histogram of sizes          ├─ join ─> sort by hour ─> a file per hour
           ├─ group by bucket ─> group ───> histogram of append lags    │
           └─ group by key ──┬─ group ────> number of keys              │
                             └─ rank ─────> top keys ───────────────────┘
```
Each task first groups its own rows. So a key or a partition with most of the records is one row per task by the time of
the shuffle. Spark sorts on disk if the rows exceed its memory. The first 64 bytes of a key, its length and 64 bits of
xxHash identify it, so keys of any size cost the same.

A new hour's file is merged with the stored one: of two rows of a topic and partition, the row with more records stays.
So a repeated run changes nothing. Late records replace the figures that were measured without them. An hour keeps its
figures after retention has begun to remove its records.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.result_store import ResultStore, open_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOURS = "hours/"
TOP_KEYS = 10  # per partition and hour: bounds a row of an hour's file
KEY_PREFIX_BYTES = 64  # bounds a key's row in the shuffle and in the file
PERCENTILES = (50, 95, 99)

_PER_HOUR = ("topic", "partition", "hour_ms")
_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
_TOP_KEY = pa.struct([("key", pa.binary()), ("key_bytes", pa.int32()), ("records", pa.int64()), ("bytes", pa.int64())])
_COUNTED = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("hour_ms", pa.int64()),
    ("records", pa.int64()),
    ("bytes", pa.int64()),
    ("key_bytes", pa.int64()),
    ("value_bytes", pa.int64()),
    ("null_keys", pa.int64()),
    ("tombstones", pa.int64()),
    ("first_offset", pa.int64()),
    ("last_offset", pa.int64()),
    *((f"size_p{each}", pa.int32()) for each in PERCENTILES),
    ("size_max", pa.int32()),
    ("size_histogram", _HISTOGRAM),
    ("append_lag_records", pa.int64()),
    *((f"append_lag_ms_p{each}", pa.int64()) for each in PERCENTILES),
    ("append_lag_ms_max", pa.int64()),
    ("append_lag_histogram", _HISTOGRAM),
    ("keys", pa.int64()),
    ("top_keys", pa.list_(_TOP_KEY)),
    ("top_key_share", pa.float64()),
]
HOURS_SCHEMA = pa.schema(
    [
        *(("hour", pa.timestamp("ms", tz="UTC")) if name == "hour_ms" else (name, kind) for name, kind in _COUNTED),
        ("topic_partitions", pa.int32()),
        ("heat", pa.float64()),
    ]
)


def count_hours(records: "DataFrame") -> "DataFrame":
    """Count the columns of an hour's file, except those that `write_hours` derives.

    Reads the records four times, so persist them first.
    """
    from pyspark.sql import functions as F  # noqa: N812  # Spark's customary name for it

    percentages = [each / 100 for each in PERCENTILES]
    counted = records.groupBy(*_PER_HOUR).agg(
        F.count(F.lit(1)).alias("records"),
        F.sum("size_bytes").alias("bytes"),
        F.coalesce(F.sum("key_bytes"), F.lit(0)).alias("key_bytes"),
        F.coalesce(F.sum("value_bytes"), F.lit(0)).alias("value_bytes"),
        F.count_if(F.isnull("key_bytes")).alias("null_keys"),
        F.count_if(F.isnull("value_bytes")).alias("tombstones"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.percentile_approx("size_bytes", percentages).alias("sizes"),
        F.max("size_bytes").alias("size_max"),
        F.count("append_lag_ms").alias("append_lag_records"),
        F.percentile_approx("append_lag_ms", percentages).alias("lags"),
        F.max("append_lag_ms").alias("append_lag_ms_max"),
    )
    for index, each in enumerate(PERCENTILES):
        counted = counted.withColumn(f"size_p{each}", F.col("sizes")[index])
        counted = counted.withColumn(f"append_lag_ms_p{each}", F.col("lags")[index])
    keys = (
        records.where(F.isnotnull("key_bytes"))
        .groupBy(
            *_PER_HOUR,
            F.xxhash64("key").alias("key_hash"),
            F.substring("key", 1, KEY_PREFIX_BYTES).alias("key"),
            "key_bytes",
        )
        .agg(F.count(F.lit(1)).alias("records"), F.sum("size_bytes").alias("bytes"))
    )
    number_of_keys = keys.groupBy(*_PER_HOUR).agg(F.count(F.lit(1)).alias("keys"))
    found = counted
    for more in (
        _histogram(records, "size_bucket", "size_histogram"),
        _histogram(records.where(F.isnotnull("append_lag_ms")), "append_lag_bucket", "append_lag_histogram"),
        number_of_keys,
        _top_keys(keys),
    ):
        found = found.join(more, list(_PER_HOUR), "left")
    keyed_records = F.col("records") - F.col("null_keys")
    found = found.withColumn("keys", F.coalesce("keys", F.lit(0)))
    found = found.withColumn("top_key_share", F.get("top_keys", 0)["records"] / keyed_records)
    return found.select(*(name for name, _ in _COUNTED))


def write_hours(counted: "DataFrame", uri: str, storage: Storage, partitions: Mapping[str, int]) -> dict[str, int]:
    """Merge each hour into its file, with a task for one or several hours.

    Returns the numbers of hours, rows and records.

    `uri` is the place of the results, and `partitions` the number of partitions of each topic. A task holds one hour at
    a time, about 1 KB for each partition.
    """
    by_hour = counted.repartition("hour_ms").sortWithinPartitions(*reversed(_PER_HOUR))
    done = by_hour.mapInArrow(_writer(uri, storage, dict(partitions)), "file_rows LONG, file_records LONG").collect()
    return {
        "hours": len(done),
        "rows": sum(each.file_rows for each in done),
        "records": sum(each.file_records for each in done),
    }


def hour_name(hour_ms: int) -> str:
    """The path of an hour's file."""
    return f"{HOURS}hour={hour_text(hour_ms)}/hour.parquet"


def hour_text(hour_ms: int) -> str:
    """The hour as text, such as `2026-11-21T14`, in UTC."""
    return datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H")


def read_hour(results: ResultStore, hour_ms: int) -> pa.Table | None:
    """An hour's file; None if there is none. Raises UNSUPPORTED_FORMAT if its columns differ from `HOURS_SCHEMA`."""
    name = hour_name(hour_ms)
    data = results.get(name)
    if data is None:
        return None
    table = pq.read_table(io.BytesIO(data))
    if set(table.column_names) != set(HOURS_SCHEMA.names):
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{results.uri(name)} has other columns than this release writes: use another folder for the results",
        )
    return table.select(HOURS_SCHEMA.names).cast(HOURS_SCHEMA)


def merge_hour(new: pa.Table, old: pa.Table | None) -> pa.Table:
    """One row for each topic and partition, in their order: the new row, unless the old one counts more records."""
    tables = [new] if old is None else [new, old]
    rows = pa.concat_tables(tables)
    best: dict[tuple[str, int], tuple[int, int]] = {}
    names = (rows.column(each).to_pylist() for each in ("topic", "partition", "records"))
    for index, (topic, partition, records) in enumerate(zip(*names, strict=True)):
        found = best.get((topic, partition))
        if found is None or records > found[0]:
            best[topic, partition] = records, index
    return _with_heat(rows.take([index for _, (_, index) in sorted(best.items())]))


def _histogram(records: "DataFrame", bucket: str, name: str) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812

    counted = records.groupBy(*_PER_HOUR, bucket).agg(F.count(F.lit(1)).alias("records"))
    entries = F.sort_array(F.collect_list(F.struct(bucket, "records")))
    return counted.groupBy(*_PER_HOUR).agg(F.map_from_entries(entries).alias(name))


def _top_keys(keys: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    order = Window.partitionBy(*_PER_HOUR).orderBy(F.desc("records"), F.desc("bytes"), "key", "key_hash")
    best = keys.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= TOP_KEYS)
    ranked = F.sort_array(F.collect_list(F.struct("rank", "key", "key_bytes", "records", "bytes")))
    return best.groupBy(*_PER_HOUR).agg(
        F.transform(ranked, lambda each: F.struct(each.key, each.key_bytes, each.records, each.bytes)).alias("top_keys")
    )


def _writer(
    uri: str, storage: Storage, partitions: Mapping[str, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = open_results(uri, storage)
        for hour_ms, rows in _by_hour(batches):
            table = merge_hour(_completed(rows, partitions), read_hour(results, hour_ms))
            sink = io.BytesIO()
            pq.write_table(table, sink, compression="zstd")
            results.put(hour_name(hour_ms), sink.getvalue())
            done = [[len(rows)], [pc.sum(rows.column("records")).as_py()]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, pa.int64()) for each in done], names=["file_rows", "file_records"]
            )

    return write


def _by_hour(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each hour. The hours come one after the other."""
    held: list[pa.Table] = []
    held_ms = 0
    for batch in batches:
        table = pa.Table.from_batches([batch]).cast(pa.schema(_COUNTED))
        for hour_ms in pc.unique(table.column("hour_ms")).to_pylist():
            if held and hour_ms != held_ms:
                yield held_ms, pa.concat_tables(held)
                held = []
            held_ms = hour_ms
            held.append(table.filter(pc.equal(table.column("hour_ms"), hour_ms)))
    if held:
        yield held_ms, pa.concat_tables(held)


def _completed(rows: pa.Table, partitions: Mapping[str, int]) -> pa.Table:
    """The rows with their derived columns. `merge_hour` adds the heat."""
    counts = [
        partitions.get(topic, partition + 1)
        for topic, partition in zip(*(rows.column(each).to_pylist() for each in ("topic", "partition")), strict=True)
    ]
    columns = {name: rows.column(name) for name, _ in _COUNTED}
    columns["hour"] = columns.pop("hour_ms").cast(pa.timestamp("ms", tz="UTC"))
    columns["topic_partitions"] = pa.array(counts, pa.int32())
    columns["heat"] = pa.nulls(len(rows), pa.float64())
    return pa.table([columns[name] for name in HOURS_SCHEMA.names], schema=HOURS_SCHEMA)


def _with_heat(rows: pa.Table) -> pa.Table:
    """The rows with each partition's heat: its bytes as a multiple of an even share of the topic's bytes."""
    topics, sizes, counts = (rows.column(each).to_pylist() for each in ("topic", "bytes", "topic_partitions"))
    totals: dict[str, int] = {}
    for topic, size in zip(topics, sizes, strict=True):
        totals[topic] = totals.get(topic, 0) + size
    heat = [
        size * count / totals[topic] if totals[topic] else 1.0
        for topic, size, count in zip(topics, sizes, counts, strict=True)
    ]
    return rows.set_column(HOURS_SCHEMA.names.index("heat"), "heat", pa.array(heat, pa.float64()))
