"""The data source `penstock` of Spark 4.2 and later, reading streams: a micro-batch lies between two offsets."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock_spark.batch import read_records
from penstock_spark.options import parse_read_options
from penstock_spark.planning import keep_what_is_there, plan_slices
from penstock_spark.snapshot import Seen, starting_offsets, take_snapshot
from penstock_spark.source import SlicePartition, check_schema, slices_of
from penstock_spark.storage import find_storage, open_broker
from penstock_spark.stream_offsets import (
    Extent,
    Position,
    extents_of,
    from_json,
    next_positions,
    ranges_between,
    to_json,
    within,
)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are chosen and planned on the driver, in one process for as long as the query runs. A micro-batch costs
    it two reads of the heads and the queries of the index that its offsets take."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_schema(schema, given)
        self._options = parse_read_options(given, is_stream=True)
        self._storage = find_storage(given)
        self._newest: list[Extent] | None = None
        self._target: list[Extent] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as those below
        seen = self._look()
        offsets = starting_offsets(open_broker(self._storage), self._options, seen)
        found = zip(seen, offsets, strict=True)
        return to_json([Position(topic=each.topic, key=each.key, offset=offset) for each, offset in found])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        offsets_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = extents_of(self._look())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._newest = extents_of(self._look())
        positions = next_positions(
            from_json(start),
            self._newest if self._target is None else within(self._newest, self._target),
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        return to_json(positions)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        if self._newest is None:
            return None
        return to_json([Position(topic=each.topic, key=each.key, offset=each.end_offset) for each in self._newest])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        broker, options = open_broker(self._storage), self._options
        ranges = ranges_between(broker, from_json(start), from_json(end), fails_on_data_loss=options.fails_on_data_loss)
        planned = plan_slices(
            broker,
            keep_what_is_there(ranges, fails_on_data_loss=options.fails_on_data_loss),
            partition_bytes=options.partition_bytes,
            min_partitions=options.min_partitions,
            fails_on_data_loss=options.fails_on_data_loss,
        )
        return [SlicePartition(slices) for slices in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_records(self._storage, self._options, slices_of(partition))

    def _look(self) -> list[Seen]:
        return take_snapshot(open_broker(self._storage), self._options.subscription)
