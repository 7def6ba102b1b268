"""Rows to records of a topic, by the SDK's producer and so by the produce path: nothing here writes to storage.

A micro-batch of a stream is written exactly once (docs/adr/0014):

```
 tasks:   hand their rows to the driver, as Arrow            (nothing is written; a task that is repeated is harmless)
 driver:  begins a transaction of `spark-<query id>`         (a driver that was thought dead is fenced by it)
          reads what that group has committed                (the last micro-batch: if it is this one, all is done)
          sends the rows, and commits `batch id + 1` as the group's offset with them
```
The records and the note that they were written become visible by one conditional write, so a micro-batch that Spark
runs again, after a crash at any point, with whatever tasks, is found to be done or is done as if for the first time.
The driver keeps its epoch for the next micro-batch, and need not read the note again: whoever else had written one
would have begun a later epoch, and fenced it.
The rows pass through the driver, and a transaction has its bounds: 64 requests ahead of the last, each of 4 MiB or the
batch less that did not fit any more, and 99 partitions with the note's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import Admin, Producer, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB, MIB, REQUEST_BYTES_MAX, TRANSACTION_STAGES_MAX
from penstock_core.record_batch import Compression
from penstock_core.records import Headers
from penstock_spark.options import Given, invalid

_BATCH_BYTES = 256 * KIB
MICRO_BATCH_BYTES_MAX = TRANSACTION_STAGES_MAX * (REQUEST_BYTES_MAX - _BATCH_BYTES)
_RECORD_BYTES = 32  # what a record takes beyond its key, value and headers, at most
_WAYS_OUT = (
    "For this micro-batch, which is in the checkpoint as it is, run the query once with delivery=at_least_once; for "
    "those to come, read less at a time (maxOffsetsPerTrigger of the source), or write to fewer partitions"
)
_UNCHECKED_MAX = 100_000  # records sent whose outcome nobody has looked at
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"

_OPTIONS = ("topic", "url", "region", "delivery", "compressionType")
_SPARKS_OWN = ("checkpointLocation", "queryName", "path")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of one write, checked. `topic` None: each row says its own. `url` and `region` None: as the SDK finds
    them."""

    topic: str | None
    url: str | None
    region: str | None
    delivery: str
    compression_type: str


class Row(NamedTuple):
    """A record on its way."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    headers: Headers
    partition: int | None


def parse_write_options(given: Mapping[str, str], columns: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """`columns` are the rows' columns with their types, as Spark names them. Raises INVALID_REQUEST for an unknown
    option or column, a value or type that cannot be, and what is missing."""
    options = Given(given)
    options.refuse_others((*_OPTIONS, *_SPARKS_OWN))
    for name, kind in columns.items():
        if name not in _COLUMNS or kind not in _COLUMNS[name]:
            wanted = ", ".join(f"{column} ({' or '.join(kinds)})" for column, kinds in _COLUMNS.items())
            raise invalid(f"column {name} of type {kind} cannot be written: select or cast to {wanted}")
    if "value" not in columns:
        raise invalid(f"columns {', '.join(columns)}: there must be one called value")
    topic = options.text("topic") if "topic" in options else None
    if topic is None and "topic" not in columns:
        raise invalid("no topic to write to: give the option topic, or a column of that name")
    if not is_stream and "delivery" in options and options.text("delivery").lower() != AT_LEAST_ONCE:
        raise invalid(
            f"delivery={options.text('delivery')!r} of a batch write: only streams are written exactly once; leave it "
            "out, and a task that Spark repeats may write its rows again"
        )
    compression = options.text("compressionType").lower() if "compressionType" in options else "zstd"
    try:
        Compression.parse(compression)
    except PenstockError as error:
        raise invalid(f"compressionType: {error.message}") from error
    return WriteOptions(
        topic=topic,
        url=options.text("url") if "url" in options else None,
        region=options.text("region") if "region" in options else None,
        delivery=options.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE)) if is_stream else AT_LEAST_ONCE,
        compression_type=compression,
    )


def open_producer(options: WriteOptions, transactional_id: str | None = None) -> Producer:
    """A producer with the write's settings."""
    return Producer(
        options.url,
        region=options.region,
        linger_ms=50,
        batch_bytes=_BATCH_BYTES,
        compression_type=options.compression_type,
        transactional_id=transactional_id,
    )


def open_admin(options: WriteOptions) -> Admin:
    """An admin client of the same service."""
    return Admin(options.url, region=options.region)


def rows_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[Row]:
    """The rows of Arrow batches; the option `topic` goes before the column."""
    for batch in batches:
        columns: dict[str, list[Any]] = {
            name: batch.column(index).to_pylist() for index, name in enumerate(batch.schema.names)
        }
        nothing = [None] * batch.num_rows
        for value, key, headers, own_topic, partition in zip(
            columns["value"],
            columns.get("key", nothing),
            columns.get("headers", nothing),
            columns.get("topic", nothing),
            columns.get("partition", nothing),
            strict=True,
        ):
            chosen = topic or own_topic
            if chosen is None:
                raise invalid("a row whose topic is null: give the option topic, or a topic with each row")
            pairs = [(each["key"], each["value"]) for each in headers or ()]
            yield Row(topic=chosen, value=value, key=key, headers=pairs, partition=partition)


def send_all(producer: Producer, rows: Iterable[Row]) -> int:
    """Sends the rows and waits until all are acknowledged; how many there were. Raises the first failure."""
    deliveries = []
    count = 0
    for row in rows:
        deliveries.append(
            producer.send(row.topic, row.value, key=row.key, headers=row.headers, partition=row.partition)
        )
        count += 1
        if len(deliveries) >= _UNCHECKED_MAX:  # so that a failure ends the task, and memory is bounded
            for delivery in deliveries[: _UNCHECKED_MAX // 2]:
                delivery.result()
            del deliveries[: _UNCHECKED_MAX // 2]
    producer.flush()
    for delivery in deliveries:
        delivery.result()
    return count


class MicroBatchWriter:
    """Writes a query's micro-batches, each once. Who keeps it from one to the next saves a new epoch, the read of the
    note and connections: a micro-batch is one request then, and one more for each 4 MiB. The producer's transactional
    id must be `transactional_id(query_id)`. What is raised ends it: close it, and go on with another."""

    def __init__(self, producer: Producer, admin: Admin, query_id: str) -> None:
        self._producer = producer
        self._admin = admin
        self._group = transactional_id(query_id)
        self._written: int | None = None  # by this one, in its epoch: a later note would be of who has fenced it

    def write(self, batch_id: int, rows: Iterable[Row]) -> bool:
        """Writes a micro-batch unless it was written before; whether it was now. Raises TRANSACTION_TOO_LARGE for more
        partitions than a transaction has, with nothing written."""
        try:
            return self._write(batch_id, rows)
        except PenstockError as error:
            if error.code is not ErrorCode.TRANSACTION_TOO_LARGE:
                raise
            message = f"a micro-batch is written exactly once in one transaction, but {error.message}. {_WAYS_OUT}"
            raise PenstockError(error.code, message, **error.facts) from error

    def _write(self, batch_id: int, rows: Iterable[Row]) -> bool:
        with self._producer.transaction() as transaction:
            # Behind the transaction's begin: nobody else writes a micro-batch of this query from here on.
            is_next = self._written is not None and self._written < batch_id
            if not is_next and any(each.offset > batch_id for each in self._admin.group_offsets(self._group)):
                return False
            first: Row | None = None
            for row in rows:
                first = first or row
                transaction.send(row.topic, row.value, key=row.key, headers=row.headers, partition=row.partition)
            if first is not None:
                transaction.send_offsets({TopicPartition(first.topic, 0): batch_id + 1}, self._group)
        if first is not None:
            self._written = batch_id
        return first is not None

    def close(self) -> None:
        self._producer.close()
        self._admin.close()


class KeptWriter:
    """The writer of the query whose micro-batch this process has written last: Spark commits in one process as long as
    there is something to do."""

    def __init__(self) -> None:
        self._key: tuple[WriteOptions, str] | None = None
        self._writer: MicroBatchWriter | None = None

    def write(self, options: WriteOptions, query_id: str, batch_id: int, rows: Iterable[Row]) -> None:
        if self._writer is None or self._key != (options, query_id):
            self.close()
            producer = open_producer(options, transactional_id(query_id))
            self._writer = MicroBatchWriter(producer, open_admin(options), query_id)
            self._key = options, query_id
        try:
            self._writer.write(batch_id, rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def transactional_id(query_id: str) -> str:
    """Who writes the micro-batches of a query, over all its restarts; also the group that has their note."""
    return f"spark-{query_id}"


def size_of(batch: pa.RecordBatch) -> int:
    """What the rows take in a transaction, before compression, at most."""
    return int(batch.nbytes) + _RECORD_BYTES * int(batch.num_rows)


def check_size(bytes_count: int) -> None:
    """Raises TRANSACTION_TOO_LARGE for rows of a micro-batch that no transaction holds."""
    if bytes_count > MICRO_BATCH_BYTES_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"a micro-batch of {-(-bytes_count // MIB)} MiB: {MICRO_BATCH_BYTES_MAX // MIB} MiB at most are written "
            f"exactly once. {_WAYS_OUT}",
            limit=MICRO_BATCH_BYTES_MAX,
        )
