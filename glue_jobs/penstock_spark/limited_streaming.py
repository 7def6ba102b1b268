"""Reading streams on Spark 4.2 and later, which lets a source limit its micro-batches and say how far it is behind."""

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock_spark.stream_offsets import from_json, to_json
from penstock_spark.streaming import PenstockStreamReader


class LimitedStreamReader(PenstockStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of `maxOffsetsPerTrigger`, also of what was there when an `availableNow` query started."""

    limits_micro_batches = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name, as those below
        offsets_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._watch.bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # Spark's, since 4.2
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self._watch.next_positions(from_json(start), offsets_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        newest = self._watch.newest()
        return None if newest is None else to_json(newest)
