"""The data source `penstock` of Spark 4: its readers and writers, and batch reads."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.plan.options import parse_read_options, raising_shortly
from penstock_spark.plan.slices import SlicePartition, slices_of
from penstock_spark.source.batch import check_schema, find_typing, plan_batch, read_task, schema_of
from penstock_spark.storage import find_storage

if TYPE_CHECKING:
    from penstock_spark.archive.typed_columns import Typing
    from penstock_spark.sink.sink import PenstockStreamWriter, PenstockWriter
    from penstock_spark.source.streaming import PenstockStreamReader


class PenstockDataSource(DataSource):
    """Topics as `spark.read.format("penstock")` reads them. plan/options.py lists the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return "penstock"

    @raising_shortly
    def schema(self) -> StructType:
        """The columns of a read with the options of this one. Raises as `find_typing`."""
        return schema_of(self.options, self._typing)

    @cached_property
    def _typing(self) -> "Typing | None":
        """The schema of the values, read once: Spark hands this object on with what it has found."""
        return find_typing(self.options)

    @raising_shortly
    def reader(self, schema: StructType) -> "PenstockReader":
        """The reader of a batch.

        Raises INVALID_REQUEST for wrong options or columns, INVALID_CONFIG without storage.
        """
        return PenstockReader(self.options, schema, self._typing)

    @raising_shortly
    def streamReader(self, schema: StructType) -> "PenstockStreamReader":  # noqa: N802  # Spark's name
        """The reader of a stream; it limits its micro-batches on Spark 4.2 and later. Raises as `reader` does."""
        from penstock_spark.source import streaming  # here, so that batch reads do not load it

        reader = getattr(streaming, "LimitedStreamReader", streaming.PenstockStreamReader)
        return reader(self.options, schema, self._typing)

    @raising_shortly
    def writer(self, schema: StructType, overwrite: bool) -> "PenstockWriter":
        """The writer of a batch. Raises INVALID_REQUEST for wrong options or columns, and for mode overwrite."""
        from penstock_spark.sink.sink import PenstockWriter  # imports the SDK's clients, which reads do not need

        _refuse_overwrite(overwrite)
        return PenstockWriter(self.options, schema)

    @raising_shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> "PenstockStreamWriter":  # noqa: N802  # Spark's name
        """The writer of a stream; it takes Arrow on Spark 4.1 and later. Raises as `writer` does."""
        _refuse_overwrite(overwrite)
        if hasattr(datasource, "DataSourceStreamArrowWriter"):  # Spark 4.1 and later have the class
            from penstock_spark.sink.sink import ArrowStreamWriter  # imports it

            return ArrowStreamWriter(self.options, schema)
        from penstock_spark.sink.sink import PenstockStreamWriter

        return PenstockStreamWriter(self.options, schema)


class PenstockReader(DataSourceReader):
    """A batch reader. It plans on the driver, when Spark plans the query, and reads on executors."""

    def __init__(self, given: Mapping[str, str], schema: StructType, typing: "Typing | None") -> None:
        check_schema(schema, given, typing)
        self._typing = typing
        self._options = parse_read_options(given, is_stream=False)
        self._storage = find_storage(given)

    @raising_shortly
    def partitions(self) -> list[InputPartition]:
        """The plan of the read: one partition for each task."""
        return [SlicePartition(slices) for slices in plan_batch(self._storage, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's records as Arrow."""
        return read_task(self._storage, self._options, self._typing, slices_of(partition))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "a topic cannot be overwritten, only appended to: use mode append"
        )
