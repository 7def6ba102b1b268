"""Measures records: one row of about 60 bytes per record, made in the task that decodes the record.

Values never leave the Python worker. Spark gets the rows, and may spill them to disk.

A segment's id tells when its writer made it, just before the put. That is the append's time, by the service's clock.
Compaction puts records into a younger segment. For such records the append's time is unknown.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock_core.errors import PenstockError
from penstock_core.ids import segment_time_ms
from penstock_core.log.ref import Tier
from penstock_service.adapters.aws import Storage
from penstock_spark.plan.options import ReadOptions, parse_read_options
from penstock_spark.plan.slices import Slice
from penstock_spark.source.batch import plan_batch, read_records
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
BUCKETS_PER_DOUBLING = 4

Integers: TypeAlias = npt.NDArray[np.int64]

_UNKNOWN = -1
MEASURED = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("hour_ms", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("key_bytes", pa.int32()),
        ("value_bytes", pa.int32()),  # null: a tombstone
        ("size_bytes", pa.int32()),
        ("size_bucket", pa.int32()),
        ("append_lag_ms", pa.int64()),
        ("append_lag_bucket", pa.int32()),
    ]
)
_SPARK_SCHEMA = (
    "topic STRING, partition INT, hour_ms LONG, offset LONG, key BINARY, key_bytes INT, value_bytes INT, "
    "size_bytes INT, size_bucket INT, append_lag_ms LONG, append_lag_bucket INT"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """The records whose timestamp lies in `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int


SkippedBatch = tuple[str, int, int, int]  # topic, partition, base offset, next offset


def measured_records(
    spark: "SparkSession",
    storage: Storage,
    window: TimeWindow,
    topics: Sequence[str],
    skipped: "Accumulator[set[SkippedBatch]] | None" = None,
) -> "DataFrame":
    """A row for each record of the window, of these topics, or of all topics if you name none.

    Undecodable batches come to `skipped`, a set because Spark may run a task twice; without it they fail their task.

    This call fixes the offsets of the read; the tasks read later. Each partition is read from its first record of the
    window to its end. A producer with a fast clock may put a record of a later time in between, and that must not end
    the read.
    """
    bounds = {"startingTimestamp": str(window.from_ms), "startingOffsetsByTimestampStrategy": "latest"}
    subscription = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}
    options = parse_read_options(
        {
            **subscription,
            "failOnDataLoss": "false",
            "onUndecodable": "raise" if skipped is None else "skip",
            **(bounds if window.from_ms else {}),
        },
        is_stream=False,
    )
    groups = [(pickle.dumps(slices),) for slices in plan_batch(storage, options)]
    tasks = spark.createDataFrame(spark.sparkContext.parallelize(groups, max(1, len(groups))), "slices BINARY")
    return tasks.mapInArrow(_measurer(storage, options, window, skipped), _SPARK_SCHEMA)


def skipped_batches(context: "SparkContext") -> "Accumulator[set[SkippedBatch]]":
    """An accumulator for `measured_records`, empty."""
    from pyspark.accumulators import AccumulatorParam

    class Union(AccumulatorParam[set[SkippedBatch]]):
        """Adds sets up."""

        def zero(self, value: set[SkippedBatch]) -> set[SkippedBatch]:  # noqa: ARG002  # Spark's signature
            return set()

        def addInPlace(self, value1: set[SkippedBatch], value2: set[SkippedBatch]) -> set[SkippedBatch]:  # noqa: N802
            return value1 | value2

    return context.accumulator(set(), Union())


def buckets(values: npt.NDArray[Any]) -> Integers:
    """The number of each value's bucket.

    Bucket `b` holds `[2**(b/4), 2**((b+1)/4))`, and bucket -1 the values below 1.
    """
    found = np.floor(BUCKETS_PER_DOUBLING * np.log2(np.maximum(values, 1))).astype(np.int64)
    return np.where(values < 1, -1, found)


def measure(records: pa.RecordBatch, appended: "AppendTimes", window: TimeWindow) -> pa.RecordBatch:
    """The rows of `MEASURED` for the records that lie in the window."""
    timestamps: Integers = records.column("timestamp").cast(pa.int64()).to_numpy() // 1_000
    is_inside = (timestamps >= window.from_ms) & (timestamps < window.to_ms)
    if not is_inside.all():
        records, timestamps = records.filter(pa.array(is_inside)), timestamps[is_inside]
    keys, offsets = records.column("key"), records.column("offset")
    key_bytes, value_bytes = pc.binary_length(keys), pc.binary_length(records.column("value"))
    sizes = pc.fill_null(key_bytes, 0).to_numpy() + pc.fill_null(value_bytes, 0).to_numpy()
    times = appended.of(records.column("partition").to_numpy(), offsets.to_numpy())
    is_unknown = times == _UNKNOWN
    lags = times - timestamps
    columns = [
        records.column("topic"),
        records.column("partition"),
        pa.array(timestamps // HOUR_MS * HOUR_MS),
        offsets,
        keys,
        key_bytes,
        value_bytes,
        pa.array(sizes.astype(np.int32)),
        pa.array(buckets(sizes).astype(np.int32)),
        pa.array(lags, mask=is_unknown),
        pa.array(buckets(lags).astype(np.int32), mask=is_unknown),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MEASURED)


class AppendTimes:
    """The append times of one topic's records in a task's slices."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        refs: Mapping[int, list[tuple[int, int]]] = defaultdict(list)
        for each in slices:
            for located in each.located():
                is_known = located.ref.tier is not Tier.ARCHIVE
                time_ms = segment_time_ms(located.ref.segment_id) if is_known else _UNKNOWN
                refs[each.key.partition].append((located.base_offset, time_ms))
        self._refs = {partition: np.array(sorted(found), np.int64) for partition, found in refs.items()}

    def of(self, partitions: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> Integers:
        """Milliseconds since 1970 for each record, -1 if the time is unknown."""
        times = np.full(len(offsets), _UNKNOWN, np.int64)
        for partition in np.unique(partitions):
            rows = np.flatnonzero(partitions == partition)
            refs = self._refs[int(partition)]
            times[rows] = refs[np.searchsorted(refs[:, 0], offsets[rows], "right") - 1, 1]
        return times


def _measurer(
    storage: Storage, options: ReadOptions, window: TimeWindow, skipped: "Accumulator[set[SkippedBatch]] | None"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def skip(error: PenstockError) -> None:
        facts = error.facts
        if skipped is not None:
            skipped.add({(facts["topic"], facts["partition"], facts["base_offset"], facts["next_offset"])})

    def measure_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pickled in batch.column(0).to_pylist():
                # The bytes are safe to load: `measured_records` pickled them on the driver of this very job.
                slices: Sequence[Slice] = pickle.loads(pickled)  # noqa: S301
                appended = {topic: AppendTimes(s for s in slices if s.topic == topic) for topic in _topics(slices)}
                for records in read_records(open_instance(storage), options, tuple(slices), skip):
                    yield measure(records, appended[records.column("topic")[0].as_py()], window)

    return measure_tasks


def _topics(slices: Iterable[Slice]) -> set[str]:
    return {each.topic for each in slices}
