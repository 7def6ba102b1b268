"""Stream reads of the data source `penstock` of Spark 4. A micro-batch lies between two stream offsets.

The driver reads a small micro-batch itself and hands it to Spark together with the plan, as Spark's simple sources do.
Then no task starts or asks a Python worker, which takes longer than the read. Tasks read all that is larger, and read a
small one too if the driver could not, or if Spark has lost the records.

On Spark 4.2 and later, a source can limit its micro-batches, and can report how far the query is behind.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource_internal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_spark.plan.options import parse_read_options, raising_shortly
from penstock_spark.plan.planning import plan_slices
from penstock_spark.plan.slices import Slice, SlicePartition, slices_of
from penstock_spark.plan.stream_offsets import from_json, to_json
from penstock_spark.plan.watching import Watch
from penstock_spark.source.batch import check_schema, read_task
from penstock_spark.storage import find_storage, open_instance

if TYPE_CHECKING:
    from penstock_spark.archive.typed_columns import Typing

# The class of readers that prefetch. It is Spark's own, and a later Spark may not have it: tasks read everything there.
PrefetchingReader: type | None = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)

PREFETCHED_BYTES_MAX = MIB  # stored: the driver reads so many in less time than a task waits for its worker
PREFETCHED_DECODED_BYTES_MAX = 16 * MIB  # the driver's process and the JVM's store hold them


class PenstockStreamReader(DataSourceStreamReader):
    """A stream reader.

    The driver chooses and plans offsets, in one process for as long as the query runs (watching.py). There Spark calls
    `partitions` and then, of readers that prefetch, `getCache`.

    Spark 4.0 and 4.1 ask for the end of a micro-batch without telling its start, so there a micro-batch takes all
    records.
    """

    limits_micro_batches = False
    _prefetched: list[pa.RecordBatch] | None = None

    def __init__(self, given: Mapping[str, str], schema: StructType, typing: "Typing | None" = None) -> None:
        check_schema(schema, given, typing)
        self._typing = typing
        self._options = parse_read_options(given, is_stream=True)
        self._storage = find_storage(given)
        if self._options.max_offsets_per_trigger is not None and not self.limits_micro_batches:
            raise PenstockError(
                ErrorCode.UNSUPPORTED_FORMAT,
                "maxOffsetsPerTrigger: Spark lets a Python source limit its micro-batches from 4.2 on; leave the "
                "option out, and a micro-batch takes all records that exist when it begins",
            )

    @raising_shortly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as the names below
        """The stream offset at which the query begins."""
        return to_json(self._watch.first_positions())

    @raising_shortly
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # as Spark before 4.2 calls it
        """The stream offset at which the next micro-batch ends."""
        return to_json(self._watch.ends())

    @raising_shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The plan of the micro-batch between two stream offsets."""
        planned = plan_slices(
            open_instance(self._storage),
            self._watch.ranges(from_json(start), from_json(end)),
            partition_bytes=self._options.partition_bytes,
            min_partitions=self._options.min_partitions,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
        self._prefetched = self._read_if_small(planned)
        return [SlicePartition(slices) for slices in planned]

    def getCache(self, _start: dict[str, Any], _end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        """The records of the plan that `partitions` has returned just now, once."""
        found, self._prefetched = self._prefetched, None
        return iter(found or ())

    @property  # type: ignore[misc]  # nobody sets it
    def __class__(self) -> type[Any]:
        """The class by which Spark knows readers that prefetch, while this one has prefetched.

        As a subclass of it, Spark would not ask how far the query is behind.
        """
        return type(self) if self._prefetched is None or PrefetchingReader is None else PrefetchingReader

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's records as Arrow."""
        return read_task(self._storage, self._options, self._typing, slices_of(partition))

    def _read_if_small(self, planned: Sequence[tuple[Slice, ...]]) -> list[pa.RecordBatch] | None:
        """The records of a small plan of one task. None leaves them to the task, which tries again and tells errors."""
        if PrefetchingReader is None or len(planned) != 1:
            return None
        [slices] = planned
        if sum(located.ref.length for each in slices for located in each.located()) > PREFETCHED_BYTES_MAX:
            return None
        records: list[pa.RecordBatch] = []
        left = PREFETCHED_DECODED_BYTES_MAX
        try:
            for batch in read_task(self._storage, self._options, self._typing, slices):
                records.append(batch)
                left -= batch.nbytes
                if left < 0:
                    return None
        except PenstockError:
            return None
        return records

    @cached_property
    def _watch(self) -> Watch:
        """The driver's watch. Tasks never make one."""
        return Watch(open_instance(self._storage), self._options)


if find_spec("pyspark.sql.streaming.datasource"):  # Spark 4.2 and later have the module
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

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

        @raising_shortly
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
