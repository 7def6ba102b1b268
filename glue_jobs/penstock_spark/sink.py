"""The data source `penstock` of Spark 4, writing: batches by the tasks, micro-batches by the driver (writing.py)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.writing import (
    EXACTLY_ONCE,
    KeptWriter,
    WriteOptions,
    check_size,
    open_producer,
    parse_write_options,
    rows_of,
    send_all,
    size_of,
)

_QUERY_ID = "sql.streaming.queryId"  # the local property that Spark's streams set
_ROWS = 4_096  # in an Arrow batch
_ARROW_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "array<struct<key:string,value:binary>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}  # of the columns that may be written


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """A task has written its rows itself."""

    count: int


@dataclass(frozen=True, slots=True)
class Handed(WriterCommitMessage):
    """A task's rows of a micro-batch, as an Arrow stream, for the driver to write."""

    query_id: str
    bytes_count: int
    stream: bytes


class PenstockWriter(DataSourceArrowWriter):
    """Each task writes its rows, by an idempotent producer: a task that Spark repeats writes them again."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_write_options(given, columns_of(schema), is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _send(self._options, iterator)


class PenstockStreamWriter(DataSourceStreamWriter):
    """Micro-batches exactly once, through the driver; or by the tasks, at least once. Spark 4.0 gives a stream's rows
    one by one, later ones as Arrow (arrow_sink.py)."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        columns = columns_of(schema)
        self._options = parse_write_options(given, columns, is_stream=True)
        self._arrow_schema = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self.write_arrow(_to_arrow(iterator, self._arrow_schema))

    def write_arrow(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """A task's rows: handed to the driver, or sent."""
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
        handed = [each for each in messages if isinstance(each, Handed) and each.stream]
        if not handed:
            return
        check_size(sum(each.bytes_count for each in handed))
        query_id = handed[0].query_id
        batches = (batch for each in handed for batch in pa.ipc.open_stream(each.stream))
        _KEPT.write(self._options, query_id, batchId, rows_of(batches, self._options.topic))


_KEPT = KeptWriter()


def columns_of(schema: StructType) -> dict[str, str]:
    """The columns and their types, as Spark names them."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _to_arrow(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := [row.asDict(recursive=True) for row in islice(rows, _ROWS)]:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _send(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Sent:
    with open_producer(options) as producer:
        return Sent(send_all(producer, rows_of(batches, options.topic)))


def _hand_over(query_id: str, batches: Iterator[pa.RecordBatch]) -> Handed:
    output = pa.BufferOutputStream()
    writer: pa.RecordBatchStreamWriter | None = None
    bytes_count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        bytes_count += size_of(batch)
        check_size(bytes_count)
        if writer is None:
            writer = pa.ipc.new_stream(output, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        writer.write_batch(batch)
    if writer is None:
        return Handed(query_id, 0, b"")
    writer.close()
    return Handed(query_id, bytes_count, output.getvalue().to_pybytes())
