"""The data source `penstock` of Spark 4: what it reads and writes with, and batch reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.batch import plan_batch, read_records, schema_of
from penstock_spark.options import parse_read_options
from penstock_spark.slices import Slice
from penstock_spark.storage import find_storage, open_broker

if TYPE_CHECKING:
    from penstock_spark.sink import PenstockStreamWriter, PenstockWriter
    from penstock_spark.streaming import PenstockStreamReader


class PenstockDataSource(DataSource):
    """Topics as `spark.read.format("penstock")` reads them; options.py lists the options."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return schema_of(self.options)

    def reader(self, schema: StructType) -> "PenstockReader":
        return PenstockReader(self.options, schema)

    def streamReader(self, schema: StructType) -> "PenstockStreamReader":  # noqa: N802  # Spark's name
        if find_spec("pyspark.sql.streaming.datasource"):  # since Spark 4.2
            from penstock_spark.limited_streaming import LimitedStreamReader

            return LimitedStreamReader(self.options, schema)
        from penstock_spark.streaming import PenstockStreamReader

        return PenstockStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PenstockWriter":
        from penstock_spark.sink import PenstockWriter  # imports the SDK's clients

        _refuse_overwrite(overwrite)
        return PenstockWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PenstockStreamWriter":  # noqa: N802  # Spark's name
        _refuse_overwrite(overwrite)
        if hasattr(datasource, "DataSourceStreamArrowWriter"):  # since Spark 4.1
            from penstock_spark.arrow_sink import ArrowStreamWriter

            return ArrowStreamWriter(self.options, schema)
        from penstock_spark.sink import PenstockStreamWriter

        return PenstockStreamWriter(self.options, schema)


class PenstockReader(DataSourceReader):
    """Plans on the driver, when the query is planned; reads on executors."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema, given)
        self._options = parse_read_options(given, is_stream=False)
        self._storage = find_storage(given)

    def partitions(self) -> list[InputPartition]:
        return [SlicePartition(slices) for slices in plan_batch(self._storage, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_records(open_broker(self._storage), self._options, slices_of(partition))


@dataclass(frozen=True, slots=True)
class SlicePartition(InputPartition):
    """What one task reads."""

    slices: tuple[Slice, ...]


def slices_of(partition: InputPartition) -> tuple[Slice, ...]:
    """What was planned for a task: nothing, if it is Spark's own partition of a read that was planned to be of none."""
    return partition.slices if isinstance(partition, SlicePartition) else ()


def check_schema(schema: StructType, given: Mapping[str, str]) -> None:
    """Raises INVALID_REQUEST if the user has asked for other columns than there are."""
    columns = schema_of(given)
    if schema.simpleString() != columns.simpleString():
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the schema {schema.simpleString()} was asked for: leave schema() out and select columns of "
            f"{columns.simpleString()}",
        )


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "a topic cannot be overwritten, only appended to: use mode append"
        )
