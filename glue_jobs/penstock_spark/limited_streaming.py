"""Reading streams on Spark 4.2 and later, which lets a source limit its micro-batches and say how far it is behind."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock_spark.stream_offsets import Extent, ends_of, extents_of, from_json, next_positions, to_json, within
from penstock_spark.streaming import PenstockStreamReader


class LimitedStreamReader(PenstockStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of `maxOffsetsPerTrigger`, also of what was there when an `availableNow` query started."""

    limits_micro_batches = True

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema)
        self._newest: list[Extent] | None = None
        self._target: list[Extent] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name, as those below
        offsets_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = extents_of(self._look())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # Spark's, since 4.2
        self._newest = extents_of(self._look())
        positions = next_positions(
            from_json(start),
            self._newest if self._target is None else within(self._newest, self._target),
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        return to_json(positions)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._newest is None else to_json(ends_of(self._newest))
