"""The data source `penstock` of Spark 4, reading streams: a micro-batch lies between two offsets."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.batch import read_records
from penstock_spark.options import parse_read_options
from penstock_spark.planning import plan_slices
from penstock_spark.source import SlicePartition, check_schema, slices_of
from penstock_spark.storage import find_storage, open_broker
from penstock_spark.stream_offsets import from_json, to_json
from penstock_spark.watching import Watch


class PenstockStreamReader(DataSourceStreamReader):
    """Offsets are chosen and planned on the driver, in one process for as long as the query runs (watching.py).

    Spark 4.0 and 4.1 do not say where a micro-batch begins when they ask where it ends: it has all that is there.
    """

    limits_micro_batches = False

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema, given)
        self._options = parse_read_options(given, is_stream=True)
        self._storage = find_storage(given)
        if self._options.max_offsets_per_trigger is not None and not self.limits_micro_batches:
            raise PenstockError(
                ErrorCode.UNSUPPORTED_FORMAT,
                "maxOffsetsPerTrigger: Spark lets a source like this one limit its micro-batches from 4.2 on; leave it "
                "out, and a micro-batch has all that is there when it begins",
            )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as those below
        return to_json(self._watch.first_positions())

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # as Spark before 4.2 calls it
        return to_json(self._watch.ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = plan_slices(
            open_broker(self._storage),
            self._watch.ranges(from_json(start), from_json(end)),
            partition_bytes=self._options.partition_bytes,
            min_partitions=self._options.min_partitions,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        return [SlicePartition(slices) for slices in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_records(open_broker(self._storage), self._options, slices_of(partition))

    @cached_property
    def _watch(self) -> Watch:
        """The driver's: tasks have none."""
        return Watch(open_broker(self._storage), self._options)
