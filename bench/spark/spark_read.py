"""Measures how fast Spark reads at local[2]: a topic in two ways, and Parquet of the same records.

All ways read the same records from the local disk, in turns, every column, into Spark's `noop`. The best of the rounds
counts. The CPU is that of Spark and its workers, and means more than a rate on a busy machine. The hand-over alone
yields the first batch of each task again and again: Spark takes the rest of the time. With a decoder for free, the
source reads and checks the segments as ever, and then yields that first batch: no decoder can be faster.
"""

import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.processes import cpu_seconds_used
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.spark.local_spark import FolderSegmentStore, fill_topic, local_session
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.topics.create_topic import create_topic
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import parse_read_options
from penstock_spark.plan.planning import plan_slices
from penstock_spark.plan.slices import Slice, SlicePartition, slices_of
from penstock_spark.plan.snapshot import choose_offsets
from penstock_spark.source.batch import read_records, schema_of

MB = 1_000_000
PARTITIONS = 4
TOPIC = "bench-spark-read"
FREE_DECODER, HANDS_OVER = "decoder for free", "hand-over alone"
_OPTIONS = parse_read_options({"subscribe": TOPIC}, is_stream=False)


class FolderDataSource(DataSource):
    """The data source on segments in a folder instead of S3. `fill` puts them there, with the plan of the read."""

    @classmethod
    def name(cls) -> str:
        return "penstock-folder"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's name
        return FolderReader(self.options["folder"], self.options.get("ceiling"))

    def schema(self) -> StructType:
        return schema_of({})


class FolderReader(DataSourceReader):
    """Reads as PenstockReader does. For a ceiling, it repeats the first batch for as many records."""

    def __init__(self, folder: str, ceiling: str | None) -> None:
        self._folder = folder
        self._ceiling = ceiling

    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(slices) for slices in _plan(Path(self._folder))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        slices = slices_of(partition)
        batches = _read(self._folder, slices)
        if self._ceiling is None:
            return batches
        first = next(batches)
        count = sum(each.end_offset - each.start_offset for each in slices) // len(first)
        if self._ceiling == HANDS_OVER:
            return islice(repeat(first), count)
        return _decoded_for_free(self._folder, slices, first, count)


def _decoded_for_free(
    folder: str, slices: tuple[Slice, ...], batch: pa.RecordBatch, count: int
) -> Iterator[pa.RecordBatch]:
    """Reads and checks the slices' bytes, and yields the batch so often, in step with the bytes."""
    stored_bytes = sum(located.ref.length for each in slices for located in each.located())
    instance = folder_instance(Path(folder))
    taken = given = 0
    for each in read_slices(
        instance, slices, range_bytes=_OPTIONS.range_bytes, fails_on_data_loss=True, shares_ranges=True
    ):
        taken += len(each.data)
        due = count * taken // stored_bytes
        yield from repeat(batch, due - given)
        given = due


def _read(folder: str, slices: tuple[Slice, ...]) -> Iterator[pa.RecordBatch]:
    return read_records(folder_instance(Path(folder)), _OPTIONS, slices)


def folder_instance(folder: Path) -> Instance:
    in_memory = memory_instance(zones=["a"])
    return replace(in_memory, stores=replace(in_memory.stores, zones=[FolderSegmentStore(folder / "segments", "a")]))


@click.command(help=__doc__)
@reported("spark_read")
@click.option("--mb", default=1_000, show_default=True, help="How many MB of values each reads.")
@click.option("--rounds", default=3, show_default=True, help="How often each is timed, in turns.")
def main(report: Report, mb: int, rounds: int) -> None:
    spark = local_session({"spark.driver.memory": "2g", "spark.python.unix.domain.socket.enabled": "true"})
    spark.dataSource.register(FolderDataSource)
    rows: list[Row] = []
    try:
        for value_bytes in (1_024, 100):
            rows += measure_reads(spark, value_bytes, mb * MB // value_bytes, rounds)
    finally:
        spark.stop()
    report.show("reads", rows)


def measure_reads(spark: SparkSession, value_bytes: int, count: int, rounds: int) -> list[Row]:
    """MB of values and records per second of each way, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = fill(folder, value_bytes, count)
        source = spark.read.format("penstock-folder").option("folder", name).load()
        ceilings = {
            each: spark.read.format("penstock-folder").options(folder=name, ceiling=each).load()
            for each in (FREE_DECODER, HANDS_OVER)
        }
        parquet = str(folder / "parquet")
        source.write.option("compression", "none").parquet(parquet)
        ways: dict[str, Callable[[], object]] = {
            "data source penstock": lambda: _drain(source),
            "penstock_spark.read": lambda: _drain(_without_data_source(spark, folder)),
            FREE_DECODER: lambda: _drain(ceilings[FREE_DECODER]),
            HANDS_OVER: lambda: _drain(ceilings[HANDS_OVER]),
            "spark.read.parquet": lambda: _drain(spark.read.parquet(parquet)),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cpu_seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds + 1):  # the first warms up
            for way, run in ways.items():
                started, used = time.perf_counter(), cpu_seconds_used()
                run()
                seconds[way].append(time.perf_counter() - started)
                cpu_seconds[way].append(cpu_seconds_used() - used)
    return [
        {
            "values": f"{value_bytes} B",
            "way": way,
            "mb_per_s": round(records * value_bytes / MB / min(taken[1:])),
            "records_per_s": round(records / min(taken[1:])),
            "cpu_s_per_gb": round(min(cpu_seconds[way][1:]) * 1_000 * MB / (records * value_bytes), 2),
        }
        for way, taken in seconds.items()
    ]


def fill(folder: Path, value_bytes: int, count: int) -> int:
    """Fills a topic in the folder, writes the plan of a read next to it, and returns the number of records."""
    (folder / "segments").mkdir()
    instance = folder_instance(folder)
    records = fill_topic(instance, create_topic(instance, TOPIC, PARTITIONS, {}), value_bytes, count)
    plan = plan_slices(instance, choose_offsets(instance, _OPTIONS), partition_bytes=_OPTIONS.partition_bytes)
    (folder / "plan.pickle").write_bytes(pickle.dumps(plan))
    return records


def _without_data_source(spark: SparkSession, folder: Path) -> DataFrame:
    """The frame that `penstock_spark.read` makes."""
    name, plan = str(folder), _plan(folder)

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(name, plan[number])

    return spark.range(0, len(plan), 1, len(plan)).mapInArrow(read_tasks, schema_of({}))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _plan(folder: Path) -> list[tuple[Slice, ...]]:
    plan: list[tuple[Slice, ...]] = pickle.loads((folder / "plan.pickle").read_bytes())
    return plan


if __name__ == "__main__":
    main()
