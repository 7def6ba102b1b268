"""What Spark reads a second at local[2]: a topic in both ways, Parquet of the same records, a loop over the decoder.

All read the same records from the local disk, in turns, every column of them, into nothing (Spark's `noop`); the best
of the rounds counts. CPU is that of Spark and its workers, which says more where others use the machine too. The
hand-over alone is one that yields the first batch of each task over and over: what is above it is Spark's.
"""

import json
import os
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from bench.folder_store import FolderSegmentStore
from bench.local_spark import local_session
from penstock_broker.adapters.memory import memory_broker
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, decode, encode
from penstock_spark.batch import read_records, schema_of
from penstock_spark.options import RANGE_BYTES, parse_read_options
from penstock_spark.planning import plan_slices
from penstock_spark.reading import read_slices
from penstock_spark.slices import Slice
from penstock_spark.snapshot import choose_offsets
from penstock_spark.source import SlicePartition, slices_of

MB = 1_000_000
NOW_MS = 1_790_000_000_000
PARTITIONS = 4
BATCH_BYTES = 256 * 1024
TOPIC = "bench-spark-read"
_OPTIONS = parse_read_options({"subscribe": TOPIC}, is_stream=False)


class FolderDataSource(DataSource):
    """The data source, with segments in a folder instead of S3, as `fill` leaves them there with the plan."""

    @classmethod
    def name(cls) -> str:
        return "penstock-folder"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark names it
        return FolderReader(self.options["folder"], hands_over_only="handsOverOnly" in self.options)

    def schema(self) -> StructType:
        return schema_of({})


class FolderReader(DataSourceReader):
    """Reads as PenstockReader does, or as many bytes of the first batch."""

    def __init__(self, folder: str, *, hands_over_only: bool) -> None:
        self._folder = folder
        self._hands_over_only = hands_over_only

    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(slices) for slices in _plan(Path(self._folder))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        slices = slices_of(partition)
        batches = _read(self._folder, slices)
        if not self._hands_over_only:
            return batches
        first = next(batches)
        return islice(repeat(first), sum(each.end_offset - each.start_offset for each in slices) // len(first))


def _read(folder: str, slices: tuple[Slice, ...]) -> Iterator[pa.RecordBatch]:
    return read_records(folder_broker(Path(folder)), _OPTIONS, slices)


def folder_broker(folder: Path) -> Broker:
    return replace(memory_broker(zones=["a"]), zones=[FolderSegmentStore(folder / "segments", "a")])


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--mb", default=1_000, show_default=True, help="How many MB of values each reads.")
@click.option("--rounds", default=3, show_default=True, help="How often each is timed, in turns.")
@click.option("--tcp", is_flag=True, help="Spark's workers hand over by TCP, its default, not by Unix sockets.")
def main(as_json: bool, mb: int, rounds: int, tcp: bool) -> None:
    is_unix = str(not tcp).lower()
    spark = local_session({"spark.driver.memory": "2g", "spark.python.unix.domain.socket.enabled": is_unix})
    spark.dataSource.register(FolderDataSource)
    try:
        report = {
            f"{value_bytes} B": measure_reads(spark, value_bytes, mb * MB // value_bytes, rounds)
            for value_bytes in (1_024, 100)
        }
    finally:
        spark.stop()
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for title, rows in report.items():
        Console().print(_table(title, rows))


def measure_reads(spark: SparkSession, value_bytes: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """MB of values and records a second of each way, in one run, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = fill(folder, value_bytes, count)
        source = spark.read.format("penstock-folder").option("folder", name).load()
        hand_over = spark.read.format("penstock-folder").options(folder=name, handsOverOnly="").load()
        parquet = str(folder / "parquet")
        source.write.option("compression", "none").parquet(parquet)
        ways: dict[str, Callable[[], object]] = {
            "data source penstock": lambda: _drain(source),
            "penstock_spark.read": lambda: _drain(_without_data_source(spark, folder)),
            "hand-over alone": lambda: _drain(hand_over),
            "spark.read.parquet": lambda: _drain(spark.read.parquet(parquet)),
            "Python loop over the SDK's decode": lambda: _loop(folder),
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
            "way": way,
            "MB/s": round(records * value_bytes / MB / min(taken[1:])),
            "records/s": round(records / min(taken[1:])),
            "CPU s/GB": round(min(cpu_seconds[way][1:]) * 1_000 * MB / (records * value_bytes), 2),
        }
        for way, taken in seconds.items()
    ]


def fill(folder: Path, value_bytes: int, count: int) -> int:
    """Appends of about a MiB to each of four partitions in turn, and the plan that reads them; how many records."""
    (folder / "segments").mkdir()
    broker = folder_broker(folder)
    topic = create_topic(broker, TOPIC, PARTITIONS, {}).name
    chance = random.Random(1)
    per_batch = max(1, BATCH_BYTES // value_bytes)
    appended = 0
    while appended < count:
        batches = [
            encode(
                [
                    NewRecord(NOW_MS + appended, b"key-%d" % (index % 1_000), chance.randbytes(value_bytes))
                    for index in range(per_batch)
                ]
            )
            for _ in range(4)
        ]
        number = appended // (4 * per_batch) % PARTITIONS
        [result] = produce(broker, [ProduceEntry(topic=topic, partition=number, data=b"".join(batches))], Acks.LEADER)
        if isinstance(result, PenstockError):
            raise result
        appended += 4 * per_batch
    plan = plan_slices(broker, choose_offsets(broker, _OPTIONS), partition_bytes=_OPTIONS.partition_bytes)
    (folder / "plan.pickle").write_bytes(pickle.dumps(plan))
    return appended


def _without_data_source(spark: SparkSession, folder: Path) -> DataFrame:
    """As `penstock_spark.read` makes it."""
    name, plan = str(folder), _plan(folder)

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(name, plan[number])

    return spark.range(0, len(plan), 1, len(plan)).mapInArrow(read_tasks, schema_of({}))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def cpu_seconds_used() -> float:
    """Of this process and all that it has started and that still runs: Spark's JVM and its Python workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours, found = {os.getpid()}, {os.getpid()}
    while found:
        found = {pid for pid, parent in parents.items() if parent in found} - ours
        ours |= found
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def _loop(folder: Path) -> int:
    """One process, one core: what a consumer does with the bytes that it has fetched."""
    broker = folder_broker(folder)
    count = 0
    for slices in _plan(folder):
        for stored in read_slices(broker, slices, range_bytes=RANGE_BYTES, fails_on_data_loss=True):
            for record in decode(stored.data):
                count += record.value is not None
    return count


def _plan(folder: Path) -> list[tuple[Slice, ...]]:
    plan: list[tuple[Slice, ...]] = pickle.loads((folder / "plan.pickle").read_bytes())
    return plan


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "way" else "right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    main()
