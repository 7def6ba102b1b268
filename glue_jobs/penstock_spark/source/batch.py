"""A batch read: from its options to a plan for the tasks, and from that plan to Arrow.

The data source and `penstock_spark.read` both use this module.
"""

import gc
import logging
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

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.undecodable import UndecodableHandler, raise_undecodable
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import ReadOptions
from penstock_spark.plan.planning import clip_to_log, plan_slices
from penstock_spark.plan.slices import Slice
from penstock_spark.plan.snapshot import choose_offsets
from penstock_spark.storage import open_instance

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
    """Plan a batch read: one group of slices for each task. The plan fixes the offsets of the read."""
    instance = open_instance(storage)
    ranges = clip_to_log(choose_offsets(instance, options), fails_on_data_loss=options.fails_on_data_loss)
    return plan_slices(
        instance,
        ranges,
        partition_bytes=options.partition_bytes,
        min_partitions=options.min_partitions,
        fails_on_data_loss=options.fails_on_data_loss,
    )


def read_records(
    instance: Instance,
    options: ReadOptions,
    slices: tuple[Slice, ...],
    on_skipped: UndecodableHandler | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the slices' records as Arrow. The records of each partition keep their order.

    If the read skips undecodable batches, `on_skipped` gets the error of each; by default the worker logs it. Call this
    in Python workers only: it freezes the process's garbage for later tasks.
    """
    _settle()
    stored = read_slices(
        instance,
        slices,
        range_bytes=options.range_bytes,
        fails_on_data_loss=options.fails_on_data_loss,
        shares_ranges=True,
    )
    handler = (on_skipped or log_skipped) if options.skips_undecodable else raise_undecodable
    return decode(stored, kafka_schema(with_headers=options.includes_headers), handler)


def log_skipped(error: PenstockError) -> None:
    """Log the error of a batch that a read has skipped, where the task runs."""
    logging.getLogger("penstock.spark").warning("skipped: %s", error)


@cache
def _settle() -> None:
    """Exempt all imported objects from garbage collection.

    Spark collects a worker's garbage after each task, and would scan them each time.
    """
    gc.collect()
    gc.freeze()


def schema_of(given: Mapping[str, str]) -> StructType:
    """The columns of a read with these options: those of Spark's Kafka source."""
    by_lower = {name.lower(): str(value).strip().lower() for name, value in given.items()}
    with_headers = by_lower.get("includeheaders") == "true"
    return StructType([*_COLUMNS, StructField("headers", _HEADERS)] if with_headers else [*_COLUMNS])


def check_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST if the user asks for other columns than the source has."""
    columns = schema_of(given)
    if schema.simpleString() != columns.simpleString():
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the schema {schema.simpleString()} was asked for: leave schema() out and select columns of "
            f"{columns.simpleString()}",
        )
