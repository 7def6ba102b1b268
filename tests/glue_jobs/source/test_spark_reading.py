"""Topics as Spark reads them from an emulator's S3 and DynamoDB, with and without its Python data source."""

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

import penstock_spark
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.support.service import entry, new_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_790_000_000_000
RECORDS = [
    NewRecord(NOW_MS, b"key", b"value", [("name", b"1"), ("none", None)]),
    NewRecord(NOW_MS + 1, None, b""),
    NewRecord(NOW_MS + 2, b"key", None),
]


HAS_SOURCES = find_spec("pyspark.sql.datasource") is not None  # Spark 4
needs_sources = pytest.mark.skipif(not HAS_SOURCES, reason="Spark 3.5 has no Python data sources")


@pytest.fixture
def penstock(spark: "SparkSession") -> "SparkSession":
    if HAS_SOURCES:
        penstock_spark.register(spark)
    return spark


def fill(instance: Instance, topic: str) -> list[tuple[Any, ...]]:
    """A batch of each compression in partitions 0 and 2 of three. Returns the rows as Spark shows them."""
    new_topic(instance, topic, partitions=3)
    rows: list[tuple[Any, ...]] = []
    for partition in (0, 2):
        for number, compression in enumerate(Compression):
            [result] = produce(instance, [entry(topic, partition, encode(RECORDS * 20, compression))], Acks.QUORUM)
            assert not isinstance(result, PenstockError)
            rows += [
                (each.key, each.value, topic, partition, number * 60 + index, each.timestamp_ms / 1_000, 0)
                for index, each in enumerate(RECORDS * 20)
            ]
    return rows


def rows_of(frame: "DataFrame") -> list[tuple[Any, ...]]:
    columns = ["key", "value", "topic", "partition", "offset", "cast(timestamp as double)", "timestampType"]
    return [tuple(row) for row in frame.orderBy("partition", "offset").selectExpr(*columns).collect()]


def test_a_topic_is_read_row_for_row_by_both_ways(
    penstock: "SparkSession", instance: Instance, storage_options: dict[str, str]
) -> None:
    expected = fill(instance, "orders")
    options = {"subscribe": "orders", "includeHeaders": "true", "partitionBytes": "4000", **storage_options}

    frames = [penstock_spark.read(penstock, **options)]
    if HAS_SOURCES:
        frames.append(penstock.read.format("penstock").options(**options).load())

    for frame in frames:
        assert frame.schema.simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
            "timestampType:int,headers:array<struct<key:string,value:binary>>>"
        )
        assert frame.rdd.getNumPartitions() > 1
        assert rows_of(frame) == expected
        with_headers = frame.where("headers is not null").select("offset", "headers").orderBy("offset").first()
        assert with_headers is not None
        assert [tuple(each) for each in with_headers.headers] == [("name", b"1"), ("none", None)]


def test_a_topic_without_records_is_a_frame_without_rows(
    penstock: "SparkSession", instance: Instance, storage_options: dict[str, str]
) -> None:
    new_topic(instance, "orders", partitions=2)

    if HAS_SOURCES:
        assert penstock.read.format("penstock").options(subscribe="orders", **storage_options).load().count() == 0
    assert penstock_spark.read(penstock, subscribe="orders", **storage_options).count() == 0


@needs_sources
def test_read_raises_before_the_query_runs_when_an_option_is_wrong(
    penstock: "SparkSession", instance: Instance, storage_options: dict[str, str]
) -> None:
    frame = penstock.read.format("penstock").options(subscribe="nowhere", **storage_options).load()

    told = re.escape("topic 'nowhere' does not exist: check its name, or create it")
    with pytest.raises(Exception, match=told) as raised:
        frame.count()
    assert str(raised.value).count('File "') <= 1  # Spark prints the frames before the sentence


def test_register_names_the_function_read_when_spark_is_older_than_4() -> None:
    class Spark3:
        version = "3.5.6"

    session: Any = Spark3()
    with pytest.raises(PenstockError, match=r"Spark 3\.5\.6 .* penstock_spark\.read") as raised:
        penstock_spark.register(session)
    assert raised.value.code is ErrorCode.UNSUPPORTED_FORMAT
