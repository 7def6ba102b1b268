"""The data source `penstock` of Spark 4, reading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.batch import plan_batch, read_records, schema_of
from penstock_spark.options import ReadOptions, parse_read_options
from penstock_spark.slices import Slice
from penstock_spark.storage import find_storage


class PenstockDataSource(DataSource):
    """Topics as `spark.read.format("penstock")` reads them; options.py lists the options."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return schema_of(self.options)

    def reader(self, schema: StructType) -> "PenstockReader":
        return PenstockReader(self.options, schema)


class PenstockReader(DataSourceReader):
    """Plans on the driver, when the query is planned; reads on executors."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema, given)
        self._options = parse_read_options(given, is_stream=False)
        self._storage = find_storage(given)

    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(slices) for slices in plan_batch(self._storage, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._storage, self._options, partition)


@dataclass(frozen=True, slots=True)
class SlicePartition(InputPartition):
    """What one task reads."""

    slices: tuple[Slice, ...]


def read_partition(storage: Storage, options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one task. Spark hands a partition of its own to a read that was planned to be of none."""
    slices = partition.slices if isinstance(partition, SlicePartition) else ()
    return read_records(storage, options, slices)


def check_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST if the user has asked for other columns than there are."""
    columns = schema_of(given)
    if schema.simpleString() != columns.simpleString():
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the schema {schema.simpleString()} was asked for: leave schema() out and select columns of "
            f"{columns.simpleString()}",
        )
