"""The writers of the data source `penstock` of Spark 4.

Tasks write batches, the driver writes micro-batches (writing.py).

Stream writes on Spark 4.1 and later, where Spark passes the rows as Arrow.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.sink.writing import (
    EXACTLY_ONCE,
    WriteOptions,
    WriterCache,
    check_micro_batch_size,
    open_producer,
    parse_write_options,
    rows_of,
    send_all,
    size_of,
)

_QUERY_ID = "sql.streaming.queryId"  # the local property that Spark sets for the tasks of a stream
_ROWS = 4_096  # in an Arrow batch, as many as a read makes
_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "array<struct<key:string,value:binary>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}  # by the columns' types in Spark


@dataclass(frozen=True, slots=True)
class SentRows(WriterCommitMessage):
    """The message of a task that has sent its rows itself."""

    count: int


@dataclass(frozen=True, slots=True)
class CollectedRows(WriterCommitMessage):
    """A task's rows of a micro-batch, as an Arrow stream, for the driver to write."""

    query_id: str
    bytes_count: int
    stream: bytes


class PenstockWriter(DataSourceArrowWriter):
    """The writer of a batch.

    Each task sends its rows through an idempotent producer; a task that Spark repeats sends them again.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_write_options(given, columns_of(schema), is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows."""
        return _send(self._options, iterator)


class PenstockStreamWriter(DataSourceStreamWriter):
    """The writer of a stream: exactly once through the driver, or at least once by the tasks.

    Spark 4.0 passes a stream's rows one by one. Later Sparks pass Arrow (arrow_sink.py).
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        columns = columns_of(schema)
        self._options = parse_write_options(given, columns, is_stream=True)
        self._arrow_schema = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Hand a task's rows to the driver, or send them."""
        return self.write_arrow(_to_arrow(iterator, self._arrow_schema))

    def write_arrow(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """As `write`, from Arrow. Raises TRANSACTION_TOO_LARGE as `check_micro_batch_size` does."""
        if self._options.delivery != EXACTLY_ONCE:
            return _send(self._options, iterator)
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query_id is None:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"Spark does not tell this task the id of its query ({_QUERY_ID}): set delivery=at_least_once",
            )
        return _hand_over(query_id, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """Write the micro-batch from the tasks' messages, unless it is written already. Runs on the driver."""
        handed = [each for each in messages if isinstance(each, CollectedRows) and each.stream]
        if not handed:
            return
        check_micro_batch_size(sum(each.bytes_count for each in handed))
        query_id = handed[0].query_id
        batches = (batch for each in handed for batch in pa.ipc.open_stream(each.stream))
        _WRITERS.write(self._options, query_id, batchId, rows_of(batches, self._options.topic))


_WRITERS = WriterCache()


def columns_of(schema: StructType) -> dict[str, str]:
    """The columns and their types, as Spark names them."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _to_arrow(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := [row.asDict(recursive=True) for row in islice(rows, _ROWS)]:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _send(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> SentRows:
    with open_producer(options) as producer:
        return SentRows(send_all(producer, rows_of(batches, options.topic)))


def _hand_over(query_id: str, batches: Iterator[pa.RecordBatch]) -> CollectedRows:
    output = pa.BufferOutputStream()
    writer: pa.RecordBatchStreamWriter | None = None
    bytes_count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        bytes_count += size_of(batch)
        check_micro_batch_size(bytes_count)
        if writer is None:
            writer = pa.ipc.new_stream(output, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        writer.write_batch(batch)
    if writer is None:
        return CollectedRows(query_id, 0, b"")
    writer.close()
    return CollectedRows(query_id, bytes_count, output.getvalue().to_pybytes())


class ArrowStreamWriter(PenstockStreamWriter, DataSourceStreamArrowWriter):
    """A `PenstockStreamWriter` that makes no Python object for a row."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Hand a task's rows to the driver, or send them."""
        return self.write_arrow(iterator)
