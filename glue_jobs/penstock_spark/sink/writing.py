"""Writes rows as records of a topic.

The rows go through the SDK's producer, and so through the produce path: nothing here writes to storage.

A micro-batch of a stream is written exactly once (docs/adr/0014):

```
 tasks:   hand their rows to the driver, as Arrow            (they write nothing, so a repeated task does no harm)
 driver:  begins a transaction of `spark-<query id>`         (which fences a driver that Spark took for dead)
          reads the offset that this group has committed     (the last micro-batch: if it is this one, all is done)
          sends the rows, and commits `batch id + 1` as the group's offset with them
```
One conditional write makes the records and the committed offset visible together. Spark may run a micro-batch again,
after a crash at any point and with any tasks. The driver then finds it done, or does it as if for the first time.

The driver keeps its epoch for the next micro-batch and need not read the offset again. Another driver that commits an
offset must first begin a later epoch, and that fences this one.

The rows pass through the driver, and a transaction has bounds. It holds 99 partitions, including the group's. It stages
64 requests before the last one, each of 4 MiB less the batch that did not fit any more.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import pyarrow as pa

from penstock import Admin, Producer, TopicPartition
from penstock.producer.settings import CompressionName
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB, MIB, REQUEST_BYTES_MAX, TRANSACTION_STAGES_MAX
from penstock_core.records.codec import Headers
from penstock_core.records.record_batch import Compression
from penstock_spark.plan.options import OptionReader, invalid

_BATCH_BYTES = 256 * KIB  # far below a request, of which each partition's batch is a part
MICRO_BATCH_BYTES_MAX = TRANSACTION_STAGES_MAX * (REQUEST_BYTES_MAX - _BATCH_BYTES)
_RECORD_BYTES = 32  # at most: a record without its key, value and headers
_WAYS_OUT = (
    "The checkpoint already holds this micro-batch: to pass it, run the query once with delivery=at_least_once; for "
    "later ones, read less at a time (maxOffsetsPerTrigger of the source), or write to fewer partitions"
)
_UNCHECKED_MAX = 100_000  # bounds the deliveries in memory; a failure ends the task at this point at the latest
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
    """The options of one write, checked.

    Without `topic`, each row names its own. Without `url` or `region`, the SDK finds them.
    """

    topic: str | None
    url: str | None
    region: str | None
    delivery: str
    compression_type: CompressionName


class Row(NamedTuple):
    """A record to write."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    headers: Headers
    partition: int | None


def parse_write_options(given: Mapping[str, str], columns: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse and check the options of one write. `columns` are the rows' columns and their types, as Spark names them.

    Raises INVALID_REQUEST for an unknown option or column, a wrong value or type, and a missing topic or value.
    """
    options = OptionReader(given)
    options.refuse_others((*_OPTIONS, *_SPARKS_OWN))
    for name, kind in columns.items():
        if name not in _COLUMNS or kind not in _COLUMNS[name]:
            writable = ", ".join(f"{column} ({' or '.join(kinds)})" for column, kinds in _COLUMNS.items())
            raise invalid(f"column {name} of type {kind} cannot be written: select or cast to {writable}")
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
        compression_type=cast("CompressionName", compression),
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
    """The rows of Arrow batches. The option `topic` takes precedence over the column."""
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
    """Send the rows and wait until all are acknowledged. Returns their number. Raises the first failure."""
    deliveries = []
    count = 0
    for row in rows:
        deliveries.append(
            producer.send(row.topic, row.value, key=row.key, headers=row.headers, partition=row.partition)
        )
        count += 1
        if len(deliveries) >= _UNCHECKED_MAX:
            for delivery in deliveries[: _UNCHECKED_MAX // 2]:
                delivery.result()
            del deliveries[: _UNCHECKED_MAX // 2]
    producer.flush()
    for delivery in deliveries:
        delivery.result()
    return count


class MicroBatchWriter:
    """Writes a query's micro-batches, each exactly once.

    Keep the writer for the next micro-batch. That saves a new epoch, the read of the committed offset, and connections:
    a micro-batch then costs one request, and one more for each 4 MiB. The producer's transactional id must be
    `transactional_id(query_id)`. After an error, close the writer and make another one.
    """

    def __init__(self, producer: Producer, admin: Admin, query_id: str) -> None:
        self._producer = producer
        self._admin = admin
        self._group = transactional_id(query_id)
        self._written: int | None = None  # by this writer, in its epoch

    def write(self, batch_id: int, rows: Iterable[Row]) -> bool:
        """Write a micro-batch unless it is written already. Returns whether this call wrote it.

        Raises TRANSACTION_TOO_LARGE for more partitions than a transaction holds; then nothing is written.
        """
        try:
            return self._write(batch_id, rows)
        except PenstockError as error:
            if error.code is not ErrorCode.TRANSACTION_TOO_LARGE:
                raise
            message = f"a micro-batch is written exactly once in one transaction, but {error.message}. {_WAYS_OUT}"
            raise PenstockError(error.code, message, maybe_applied=error.maybe_applied, **error.facts) from error

    def _write(self, batch_id: int, rows: Iterable[Row]) -> bool:
        with self._producer.transaction() as transaction:
            # The transaction has begun: from here on, no other driver writes a micro-batch of this query.
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
        """Close the producer and the admin client."""
        self._producer.close()
        self._admin.close()


class WriterCache:
    """The writer of the query whose micro-batch this process wrote last.

    Spark commits the micro-batches of a query in one process for as long as the query has work. One entry is enough:
    the process of a query writes for that query.
    """

    def __init__(self) -> None:
        self._key: tuple[WriteOptions, str] | None = None
        self._writer: MicroBatchWriter | None = None

    def write(self, options: WriteOptions, query_id: str, batch_id: int, rows: Iterable[Row]) -> None:
        """Write a micro-batch with the cached writer, or with a new one. An error closes the writer."""
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
        """Close the cached writer, if there is one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def transactional_id(query_id: str) -> str:
    """The transactional id of a query, across its restarts. Its group, of the same name, keeps the last micro-batch."""
    return f"spark-{query_id}"


def size_of(batch: pa.RecordBatch) -> int:
    """An upper bound of the bytes that the rows take in a transaction, before compression."""
    return int(batch.nbytes) + _RECORD_BYTES * int(batch.num_rows)


def check_micro_batch_size(bytes_count: int) -> None:
    """Raise TRANSACTION_TOO_LARGE for a micro-batch that no transaction holds."""
    if bytes_count > MICRO_BATCH_BYTES_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"a micro-batch of {-(-bytes_count // MIB)} MiB: {MICRO_BATCH_BYTES_MAX // MIB} MiB at most are written "
            f"exactly once. {_WAYS_OUT}",
            limit=MICRO_BATCH_BYTES_MAX,
        )
