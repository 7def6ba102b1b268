"""A streaming query over a growing topic, killed midway and restarted: each offset comes once, in its micro-batch."""

import contextlib
import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock_spark
from localstack.clients import client
from penstock_core.errors import PenstockError
from penstock_core.limits import JUMP_MARGIN_OFFSETS, MIB
from penstock_core.records.record_batch import Compression, parse_header
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_spark.source.batch import schema_of
from tests.support.restoring import jump
from tests.support.service import batch, entry, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ENDS_S_MAX = 120
pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")

from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper  # noqa: E402

from penstock_spark.source.streaming import PenstockStreamReader  # noqa: E402

HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None  # Spark 4.2

Sink = dict[int, list[tuple[int, int, str]]]


class CrashError(Exception):
    """The sink's process ends here."""


@pytest.fixture
def stream(spark: "SparkSession", storage_options: dict[str, str], tmp_path: Path) -> Any:
    """Run the query from its checkpoint into a function, and wait until it has read all records.

    Returns Spark's progress of each micro-batch, which its page "Structured Streaming" shows.
    """
    penstock_spark.register(spark)
    # Before 4.2 the query would be one micro-batch, or the crashed one after a crash.
    spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")

    def run(write: Callable[["DataFrame", int], None], **options: str) -> list[dict[str, Any]]:
        frame = (
            spark.readStream.format("penstock")
            .options(**{"subscribe": "orders", "startingOffsets": "earliest", **storage_options, **options})
            .load()
        )
        writer: DataStreamWriter = frame.selectExpr("partition", "offset", "cast(value as string)").writeStream
        query = (
            writer.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(ENDS_S_MAX)
            return [json.loads(each.json) for each in query.recentProgress]
        finally:
            query.stop()

    return run


@pytest.mark.parametrize("restarts", [2, pytest.param(10, marks=pytest.mark.minutes)])
def test_query_reads_each_offset_once_when_it_is_killed_and_restarted(
    restarts: int, instance: Instance, stream: Any, tmp_path: Path
) -> None:
    new_topic(instance, "orders", partitions=2)
    expected: list[tuple[int, int, str]] = []
    sink: Sink = {}
    crashes = 0

    def write(frame: "DataFrame", batch_id: int) -> None:
        nonlocal crashes
        rows = sorted(tuple(row) for row in frame.collect())
        assert sink.setdefault(batch_id, rows) == rows, "a micro-batch that runs again has the same records"
        if crashes < restarts and batch_id % 2 == crashes % 2:
            crashes += 1
            raise CrashError

    for restart in range(restarts + 1):
        if restart == restarts // 2:
            alter_topic(instance, "orders", 3, {})
        for partition in (0, 1) if restart < restarts // 2 else (0, 1, 2):
            for _ in range(4):
                sent = send(instance, "orders", f"{partition} at {restart}", partition=partition)
                expected.append((partition, sent.base_offset, f"{partition} at {restart}"))
        with contextlib.nullcontext() if restart == restarts else pytest.raises(Exception, match="CrashError"):
            stream(write, **{"maxOffsetsPerTrigger": "7"} if HAS_LIMITS else {})

    assert crashes == restarts
    assert sorted(row for rows in sink.values() for row in rows) == sorted(expected)
    assert max(map(len, sink.values())) <= 7 or not HAS_LIMITS
    [*_, last] = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = json.loads(last.read_text().splitlines()[-1])
    assert offsets["orders"] == {"0": 4 * (restarts + 1), "1": 4 * (restarts + 1), "2": 4 * (restarts // 2 + 1)}


@pytest.mark.skipif(not HAS_LIMITS, reason="a source in Python cannot limit its micro-batches")
def test_micro_batches_are_within_the_limit_and_progress_tells_how_far_the_query_is_behind(
    instance: Instance, stream: Any
) -> None:
    new_topic(instance, "orders", partitions=2)
    for partition in (0, 1):
        send(instance, "orders", *map(str, range(10)), partition=partition)

    progress = stream(lambda frame, _: frame.collect(), maxOffsetsPerTrigger="8")

    rows = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert rows == [8, 8, 4]
    sources = [each["sources"][0] for each in progress if each["numInputRows"]]
    read = [sum(each["endOffset"]["orders"].values()) for each in sources]
    newest = [sum(each["latestOffset"]["orders"].values()) for each in sources]
    assert list(zip(read, newest, strict=True)) == [(8, 20), (16, 20), (20, 20)]
    assert sources[-1]["startOffset"]["orders"] == sources[-2]["endOffset"]["orders"]


def test_checkpoint_goes_on_over_a_drained_partition_and_a_topic_that_was_made_anew(
    instance: Instance, stream: Any
) -> None:
    found: list[tuple[int, int, str]] = []

    def write(frame: "DataFrame", _: int) -> None:
        found.extend(tuple(row) for row in frame.collect())

    new_topic(instance, "orders", partitions=2)
    send(instance, "orders", "a", partition=1)
    stream(write)
    send(instance, "orders", "b", partition=1)
    alter_topic(instance, "orders", 1, {})  # partition 1 takes no more records
    stream(write)
    delete_topic(instance, "orders")
    new_topic(instance, "orders")
    send(instance, "orders", "c")
    with pytest.raises(Exception, match="OFFSET_OUT_OF_RANGE"):
        stream(write)
    stream(write, failOnDataLoss="false")

    assert found == [(1, 0, "a"), (1, 1, "b"), (0, 0, "c")]


def test_checkpoint_goes_on_behind_a_restore_of_its_stage(instance: Instance, storage: Storage, stream: Any) -> None:
    found: list[tuple[int, int, str]] = []

    def write(frame: "DataFrame", _: int) -> None:
        found.extend(tuple(row) for row in frame.collect())

    new_topic(instance, "orders")
    send(instance, "orders", "a")
    dynamodb = client("dynamodb", _port(storage))
    kept = dynamodb.scan(TableName=storage.log_table)["Items"]
    send(instance, "orders", "lost")
    stream(write)
    for item in dynamodb.scan(TableName=storage.log_table)["Items"]:
        dynamodb.delete_item(TableName=storage.log_table, Key={name: item[name] for name in ("pk", "sk")})
    for item in kept:
        dynamodb.put_item(TableName=storage.log_table, Item=item)
    jump(instance, 2)
    send(instance, "orders", "b")
    with pytest.raises(Exception, match="a restore removed the rest"):
        stream(write)
    stream(write, failOnDataLoss="false")

    assert found == [(0, 0, "a"), (0, 1, "lost"), (0, 2 + JUMP_MARGIN_OFFSETS, "b")]


def test_small_micro_batch_comes_from_the_driver_with_its_progress(
    instance: Instance, storage: Storage, stream: Any
) -> None:
    new_topic(instance, "orders", partitions=2)
    for partition in (0, 1):
        send(instance, "orders", f"a{partition}", f"b{partition}", partition=partition)
    found: list[tuple[int, int, str]] = []

    def write(frame: "DataFrame", _: int) -> None:
        remove_segments(storage)  # a task would find nothing to read
        found.extend(tuple(row) for row in frame.collect())

    [progress] = stream(write)

    assert sorted(found) == [(0, 0, "a0"), (0, 1, "b0"), (1, 0, "a1"), (1, 1, "b1")]
    assert progress["numInputRows"] == 4
    assert not HAS_LIMITS or progress["sources"][0]["latestOffset"]["orders"] == {"0": 2, "1": 2}


@pytest.mark.parametrize(
    ("given", "data", "is_prefetched"),
    [
        ({}, [batch("a"), batch("b")], True),
        ({"partitionBytes": "1"}, [batch("a"), batch("b")], False),
        ({}, [batch(random.Random(number).randbytes(MIB // 4).hex()) for number in range(3)], False),
        ({}, [batch(*["x" * MIB] * 16, compression=Compression.ZSTD)], False),
    ],
    ids=["small", "of two tasks", "large", "large when decoded"],
)
def test_driver_reads_only_small_micro_batches_of_one_task(
    instance: Instance, storage_options: dict[str, str], given: dict[str, str], data: list[bytes], is_prefetched: bool
) -> None:
    new_topic(instance, "orders")
    reader = _reader({**storage_options, **given})
    start = reader.initialOffset()
    for each in data:
        [result] = produce(instance, [entry("orders", 0, each)], Acks.QUORUM)
        assert not isinstance(result, PenstockError)
    end = reader.latestOffset()

    planned = reader.partitions(start, end)

    assert isinstance(reader, _SimpleStreamReaderWrapper) == is_prefetched
    prefetched = list(reader.getCache(start, end))
    assert not isinstance(reader, _SimpleStreamReaderWrapper)
    read = [records for each in planned for records in reader.read(each)]
    assert prefetched == (read if is_prefetched else [])
    assert sum(map(len, read)) == sum(parse_header(each).record_count for each in data)


def test_task_tells_the_error_of_a_micro_batch_that_the_driver_could_not_read(
    instance: Instance, storage: Storage, storage_options: dict[str, str]
) -> None:
    new_topic(instance, "orders")
    reader = _reader(storage_options)
    start = reader.initialOffset()
    send(instance, "orders", "a")
    end = reader.latestOffset()
    remove_segments(storage)

    [planned] = reader.partitions(start, end)

    assert not isinstance(reader, _SimpleStreamReaderWrapper)
    with pytest.raises(PenstockError):
        list(reader.read(planned))


@pytest.mark.minutes
def test_query_keeps_its_first_offset_when_it_begins_at_the_latest(instance: Instance, stream: Any) -> None:
    new_topic(instance, "orders")
    send(instance, "orders", "before")
    found: list[tuple[int, list[str]]] = []

    def write(frame: "DataFrame", batch_id: int) -> None:
        found.append((batch_id, [row["value"] for row in frame.collect()]))

    stream(write, startingOffsets="latest")
    send(instance, "orders", "after")
    stream(write, startingOffsets="latest")

    assert found == [(0, []), (1, ["after"])]


def test_limit_is_refused_and_all_records_are_read_when_spark_is_older_than_4_2(
    instance: Instance, storage_options: dict[str, str]
) -> None:
    new_topic(instance, "orders", partitions=2)
    with pytest.raises(PenstockError, match=r"maxOffsetsPerTrigger: .* from 4\.2 on"):
        _reader({**storage_options, "maxOffsetsPerTrigger": "7"})
    reader = _reader(storage_options)
    start = reader.initialOffset()
    for number in range(3):
        send(instance, "orders", f"{number}-a", f"{number}-b", partition=1)

    end = reader.latestOffset()

    assert (start["orders"], end["orders"]) == ({"0": 0, "1": 0}, {"0": 0, "1": 6})
    read = [batch for each in reader.partitions(start, end) for batch in reader.read(each)]
    assert [value for batch in read for value in batch.column("offset").to_pylist()] == list(range(6))


def _reader(options: dict[str, str]) -> "PenstockStreamReader":
    """The reader as Spark before 4.2 has it."""
    given = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    return PenstockStreamReader(given, schema_of(given))


def _port(storage: Storage) -> int:
    return int(str(storage.endpoint_url).rpartition(":")[2])


def remove_segments(storage: Storage) -> None:
    s3 = client("s3", _port(storage))
    for zone in storage.zones:
        for each in s3.list_objects_v2(Bucket=zone.bucket)["Contents"]:
            s3.delete_object(Bucket=zone.bucket, Key=each["Key"])
