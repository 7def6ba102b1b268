"""Reading streams on Spark 4.2 and later.

There a source can limit its micro-batches, and can report how far the query is behind.
"""

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock_spark.plan.stream_offsets import from_json, to_json
from penstock_spark.source.streaming import PenstockStreamReader


class LimitedStreamReader(PenstockStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of at most `maxOffsetsPerTrigger` offsets.

    An `availableNow` query has them too, and ends at the records that existed when it started.
    """

    limits_micro_batches = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name, as the names below
        """The limit of a micro-batch: `maxOffsetsPerTrigger` offsets, or none."""
        offsets_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the records that exist now as the end of the query."""
        self._watch.bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # as Spark 4.2 calls it
        """The stream offset at which the micro-batch from `start` ends, within the limit."""
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self._watch.next_positions(from_json(start), offsets_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest stream offset; None before the first look.

        Spark computes from it how far the query is behind.
        """
        newest = self._watch.newest()
        return None if newest is None else to_json(newest)
