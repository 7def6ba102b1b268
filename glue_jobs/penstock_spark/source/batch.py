"""A batch read: from its options to a plan for the tasks, and from that plan to Arrow.

The data source and `penstock_spark.read` both use this module.

With the option `valueSchema`, values have typed columns, made as the typed archive makes them. The driver reads the
schema once, when Spark asks for the columns; tasks get it with the plan. So a query has the columns that it began with.
"""

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

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
from penstock_spark.plan.options import OF_TOPIC, ReadOptions, invalid, value_schema_of
from penstock_spark.plan.planning import clip_to_log, plan_slices
from penstock_spark.plan.slices import Slice
from penstock_spark.plan.snapshot import choose_offsets
from penstock_spark.storage import find_storage, open_instance

if TYPE_CHECKING:
    from penstock_spark.archive.typed_columns import Typing

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


def read_task(
    storage: Storage, options: ReadOptions, typing: "Typing | None", slices: tuple[Slice, ...]
) -> Iterator[pa.RecordBatch]:
    """A task's records as Arrow, with typed columns if there is a `typing`. Raises as `read_records` and `typed`."""
    if typing is not None and typing.kind == "registry":
        options = replace(options, includes_headers=True)  # one may name the schema; `typed` leaves them out again
    records = read_records(open_instance(storage), options, slices)
    return records if typing is None else typed(records, typing, storage, fails_fast=options.fails_fast)


def find_typing(given: Mapping[str, str]) -> "Typing | None":
    """The schema of a read's values, and its columns; None for a read without the option `valueSchema`.

    Reads the schema where the option says, and for `topic` what the topics say. Raises INVALID_REQUEST and
    INVALID_CONFIG with the way out, and STORAGE_UNAVAILABLE.
    """
    place, topics = value_schema_of(given)
    if place is None:
        return None
    from penstock_spark.archive.registered_schemas import open_registry, read_schema
    from penstock_spark.archive.typed_columns import Typing, table_fields, value_columns

    storage = find_storage(given)
    if place == OF_TOPIC:
        place = _place_of_topics(open_instance(storage), topics)
    kind, _, rest = place.partition(":")
    if kind == "registry" and len(topics) != 1 and not "".join(rest.split("#")[1:2]):
        raise invalid(f"valueSchema={place:.200}: the read has {len(topics)} topics by name: give {place}#SUBJECT")
    open_registry.cache_clear()  # a registry's answers have a bound of time in a process, and notebooks live long
    text = (
        rest
        if kind in ("json", "avro") and rest.startswith("{")
        else read_schema(kind, rest, "".join(topics[:1]), storage)
    )
    fields = [*kafka_schema(with_headers=_has_headers(given)), *table_fields(value_columns(kind, text))]
    return Typing.of(kind, text, pa.schema(fields))


def typed(
    records: Iterator[pa.RecordBatch], typing: "Typing", storage: Storage, *, fails_fast: bool
) -> Iterator[pa.RecordBatch]:
    """The records with typed columns. A value that does not fit has its bytes in `_raw`, and why in `_raw_reason`.

    With `fails_fast` there are no such columns. Then the first such value raises INVALID_RECORD, with its topic,
    partition and offset. A registry's errors name where the records begin.
    """
    from penstock_spark.archive.archive_files import plan_typer
    from penstock_spark.archive.registered_schemas import open_registry
    from penstock_spark.archive.typing_values import in_parts

    columns = _arrow_schema(typing, fails_fast=fails_fast)
    typer = plan_typer(typing, None, "", partial(open_registry, storage))
    for batch in in_parts(records):
        try:
            made = typer.add(batch)
        except PenstockError as error:
            raise PenstockError(error.code, f"values from {_place(batch, 0)} on: {error.message}") from error
        if fails_fast and typer.unfit:
            reasons = made.column("_raw_reason").to_pylist()
            row = next(number for number, each in enumerate(reasons) if each is not None)
            raise PenstockError(
                ErrorCode.INVALID_RECORD,
                f"the value at {_place(batch, row)} does not fit the schema: {reasons[row]}; read with mode=PERMISSIVE "
                "to have such values in the column _raw",
            )
        yield pa.RecordBatch.from_arrays([made.column(each.name).cast(each.type) for each in columns], schema=columns)


def schema_of(given: Mapping[str, str], typing: "Typing | None" = None) -> StructType:
    """The columns of a read with these options: those of Spark's Kafka source, and the typed ones behind them."""
    columns = StructType([*_COLUMNS, StructField("headers", _HEADERS)] if _has_headers(given) else [*_COLUMNS])
    if typing is None:
        return columns
    from pyspark.sql.pandas.types import from_arrow_type

    added = [*_arrow_schema(typing, fails_fast=_option(given, "mode") == "failfast")][len(columns) :]
    types = [from_arrow_type(each.type, prefer_timestamp_ntz=True) for each in added]
    return StructType([*columns, *(StructField(each.name, kind) for each, kind in zip(added, types, strict=True))])


def check_schema(schema: StructType, given: Mapping[str, str], typing: "Typing | None" = None) -> None:
    """Raise INVALID_REQUEST if the user asks for other columns than the source has."""
    columns = schema_of(given, typing)
    if schema.simpleString() != columns.simpleString():
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the schema {schema.simpleString()} was asked for: leave schema() out and select columns of "
            f"{columns.simpleString()}; the option valueSchema types the values",
        )


def _option(given: Mapping[str, str], name: str) -> str:
    return {each.lower(): str(value).strip().lower() for each, value in given.items()}.get(name, "")


def _has_headers(given: Mapping[str, str]) -> bool:
    return _option(given, "includeheaders") == "true"


def _place_of_topics(instance: Instance, topics: Sequence[str]) -> str:
    found = {instance.topic_cache.read_through(each).config.value_schema for each in topics}
    if len(found) != 1 or "" in found:
        raise invalid(
            f"valueSchema={OF_TOPIC}: the topics of the read must name one value_schema, and have "
            f"{sorted(found)!s:.300}; give valueSchema=json:PLACE, avro:PLACE, protobuf:PLACE#MESSAGE or registry:URL"
        )
    return found.pop()


def _place(batch: pa.RecordBatch, row: int) -> str:
    topic, partition, offset = (batch.column(each)[row].as_py() for each in ("topic", "partition", "offset"))
    return f"offset {offset} of {topic}[{partition}]"


def _arrow_schema(typing: "Typing", *, fails_fast: bool) -> pa.Schema:
    """The columns as Spark takes them from Arrow."""
    fields = [pa.field(each.name, _spark_type(each.type)) for each in typing.file_schema()]
    return pa.schema(fields[:-2] if fails_fast else fields)  # the last two are _raw and _raw_reason


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Everything is nullable. A time becomes text, because Spark before 4.1 has no type for it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _spark_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _spark_type(kind.item_type))
    return pa.string() if pa.types.is_time(kind) else kind
