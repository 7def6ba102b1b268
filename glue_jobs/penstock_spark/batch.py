"""A batch read: from its options to what each task reads, and from that to Arrow. Both ways into Spark go by it."""

import gc
from collections.abc import Iterator, Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_spark.decoding import decode, kafka_schema
from penstock_spark.options import ReadOptions
from penstock_spark.planning import keep_what_is_there, plan_slices
from penstock_spark.reading import read_slices
from penstock_spark.slices import Slice
from penstock_spark.snapshot import choose_offsets
from penstock_spark.storage import open_broker

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


def plan_batch(storage: Storage, options: ReadOptions) -> list[tuple[Slice, ...]]:
    """What each task of a batch read reads: the offsets are fixed here."""
    broker = open_broker(storage)
    ranges = keep_what_is_there(choose_offsets(broker, options), fails_on_data_loss=options.fails_on_data_loss)
    return plan_slices(
        broker,
        ranges,
        partition_bytes=options.partition_bytes,
        min_partitions=options.min_partitions,
        fails_on_data_loss=options.fails_on_data_loss,
    )


def read_records(broker: Broker, options: ReadOptions, slices: tuple[Slice, ...]) -> Iterator[pa.RecordBatch]:
    """The slices' records as Arrow, those of each partition in their order. For Python workers only: it settles the
    process for many tasks."""
    _settle()
    stored = read_slices(
        broker,
        slices,
        range_bytes=options.range_bytes,
        fails_on_data_loss=options.fails_on_data_loss,
        shares_ranges=True,
    )
    return decode(stored, kafka_schema(with_headers=options.includes_headers))


@cache
def _settle() -> None:
    """Spark collects a worker's garbage after each task, and would look through all that is imported each time."""
    gc.collect()
    gc.freeze()


def schema_of(given: Mapping[str, str]) -> StructType:
    """The columns of a read with these options: those of Spark's Kafka source."""
    by_lower = {name.lower(): str(value).strip().lower() for name, value in given.items()}
    with_headers = by_lower.get("includeheaders") == "true"
    return StructType([*_COLUMNS, StructField("headers", _HEADERS)] if with_headers else [*_COLUMNS])
