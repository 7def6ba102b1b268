"""Decodes batches to Arrow without a Python object per record.

```
 stored batches ──spans──▶ one buffer, and the place of each batch's records in it
                ──find_records──▶ the start and end of each record
                ──read_varints──▶ NumPy arrays: timestamps, offsets, starts and ends of keys and values
                ──take──▶ Arrow columns, copied once, in C++
```
Python looks at single records only if they have headers, and only if the read asks for headers. Batches may have gaps
and may be empty, as compaction leaves them. A record's offset is the sum of its batch's base offset and its own delta.

This fast way takes only what a producer writes that follows Kafka's format. It leaves every other batch to the record
codec (by_codec.py), which the SDK uses too. So Spark and the SDK read the same records and refuse the same batches.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, BATCH_RECORDS_MAX, MIB
from penstock_core.records.compression import decompress_into
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, NO_TIME_MS, BatchHeader, Compression, walk
from penstock_core.records.undecodable import UndecodableHandler, raise_undecodable
from penstock_spark.decode.by_codec import ARROW_BYTES_MAX, ARROW_ROWS_MAX, BatchRange, decode_by_codec, spark_times
from penstock_spark.decode.headers import headers_column
from penstock_spark.decode.varints import (
    LONG_BYTES_MAX,
    Bytes,
    DoubtfulBatchError,
    Integers,
    find_records,
    read_varints,
)

CHUNK_BYTES = 4 * MIB  # decoded at once; a larger range or batch makes a larger chunk
UNCOPIED_BYTES = 2 * MIB  # from this size on, a range without compression is decoded in place

Buffer: TypeAlias = bytes | mmap.mmap

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_CREATE_TIME, _LOG_APPEND_TIME = 0, 1  # Kafka's TimestampType
_COMPRESSION_BITS = 0x07
_ATTRIBUTES_END = 0x80  # Kafka has one byte of attributes and uses none; the codec takes a larger one for a varint


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatches:
    """Bytes of whole batches of one partition, the first at `base_offset`.

    The read asks for the records in `[start_offset, end_offset)`.
    """

    topic: str
    partition: int
    data: bytes
    base_offset: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The place of one batch's records in a chunk's buffer, uncompressed; `at` is the batch's in the stored bytes."""

    stored: StoredBatches
    header: BatchHeader
    base_offset: int
    at: int
    position: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """The fields of a chunk's records: one entry per record in each array.

    If the end of a key or value lies before its start, it is null.
    """

    offsets: Integers
    timestamps_ms: Integers
    partitions: Integers
    timestamp_types: Integers
    key_starts: Integers
    key_ends: Integers
    value_starts: Integers
    value_ends: Integers
    header_counts: Integers
    headers_at: Integers
    ends: Integers


def kafka_schema(*, with_headers: bool) -> pa.Schema:
    """The columns of Spark's Kafka source, as Arrow has them."""
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema([*fields, ("headers", headers)] if with_headers else fields)


def decode(
    stored: Iterable[StoredBatches], schema: pa.Schema, on_undecodable: UndecodableHandler = raise_undecodable
) -> Iterator[pa.RecordBatch]:
    """Decode the records that the read asks for, in the order given.

    An Arrow batch holds at most `ARROW_ROWS_MAX` rows and about `ARROW_BYTES_MAX`. The caller checked the CRCs when it
    read the bytes. An undecodable batch goes to `on_undecodable` as its error, behind the records that came before it:
    CORRUPT_BATCH if it contradicts its header, UNSUPPORTED_FORMAT for a control batch or one that decompresses to too
    many bytes. If the handler returns, the decoding goes on behind the batch. A read without headers does not look at
    them, and takes a batch whose headers alone are wrong.
    """
    for buffer, spans in _chunks(stored):
        rows = 0
        try:
            for batch in _decode_chunk(buffer, spans, schema):
                rows += batch.num_rows
                yield batch
        except DoubtfulBatchError:
            yield from _without_first(rows, _decode_one_by_one(buffer, spans, schema, on_undecodable))


def _decode_chunk(buffer: Buffer | None, spans: Sequence[_Span], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if buffer is None:
        raise DoubtfulBatchError("not decompressed")
    yield from _to_arrow(buffer, spans[0].stored.topic, _read_fields(buffer, spans), schema)


def _decode_one_by_one(
    buffer: Buffer | None, spans: Sequence[_Span], schema: pa.Schema, on_undecodable: UndecodableHandler
) -> Iterator[pa.RecordBatch]:
    """Decode batch by batch, and by the codec where need be: one bad batch does not slow its neighbours down."""
    for span in spans:
        try:
            batches = list(_decode_chunk(buffer, [span], schema))
        except DoubtfulBatchError:
            stored = span.stored
            batch = BatchRange(
                topic=stored.topic,
                partition=stored.partition,
                data=stored.data[span.at : span.at + span.header.length],
                base_offset=span.base_offset,
                start_offset=stored.start_offset,
                end_offset=stored.end_offset,
            )
            yield from decode_by_codec(batch, schema, on_undecodable)
        else:
            yield from batches


def _without_first(rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        dropped = min(rows, batch.num_rows)
        rows -= dropped
        if dropped < batch.num_rows:
            yield batch.slice(dropped)


def _chunks(stored: Iterable[StoredBatches]) -> Iterator[tuple[Buffer | None, list[_Span]]]:
    """Yield buffers with the uncompressed records of one topic, and their batches.

    A buffer is valid until the next one. It is None for a batch that cannot be put into one.

    Small ranges and compressed batches are gathered in one buffer that is used again and again. A large range without
    compression is a buffer of its own, without a copy.
    """
    # A page of the map takes memory only once it is written, so small ranges do not pay for the bounds.
    scratch = mmap.mmap(-1, CHUNK_BYTES + BATCH_DECODED_BYTES_MAX)
    spans: list[_Span] = []
    fill = 0
    for each in stored:
        batches = list(_overlapping_batches(each))
        is_large = len(each.data) >= UNCOPIED_BYTES and all(_is_plain(header) for _, _, header in batches)
        if spans and (is_large or each.topic != spans[0].stored.topic):
            yield scratch, spans
            spans, fill = [], 0
        if is_large:
            found = [_span(each, base, header, at, at + BATCH_HEADER_BYTES) for at, base, header in batches]
            if found:
                yield each.data, found
            continue
        for at, base, header in batches:
            length = _put(each.data, at, header, scratch, fill)
            if length is None:
                if spans:
                    yield scratch, spans
                    spans, fill = [], 0
                yield None, [_span(each, base, header, at, 0)]
                continue
            spans.append(_span(each, base, header, at, fill, length))
            fill += length
            if fill >= CHUNK_BYTES:
                yield scratch, spans
                spans, fill = [], 0
    if spans:
        yield scratch, spans


def _put(stored: bytes, at: int, header: BatchHeader, scratch: mmap.mmap, position: int) -> int | None:
    """Write a batch's records, uncompressed, to `position`. Returns their length in bytes; None if it cannot."""
    with (
        memoryview(stored) as data,
        data[at + BATCH_HEADER_BYTES : at + header.length] as payload,
        memoryview(scratch) as whole,
        whole[position : position + BATCH_DECODED_BYTES_MAX] as output,
    ):
        if not _is_readable(header) or (_is_plain(header) and len(payload) > len(output)):
            return None
        if _is_plain(header):
            output[: len(payload)] = payload
            return len(payload)
        try:
            return decompress_into(payload, header.compression, output)
        except PenstockError:  # the codec meets the same, and tells
            return None


def _span(
    stored: StoredBatches, base: int, header: BatchHeader, at: int, position: int, length: int | None = None
) -> _Span:
    length = header.length - BATCH_HEADER_BYTES if length is None else length
    return _Span(stored=stored, header=header, base_offset=base, at=at, position=position, end=position + length)


def _is_plain(header: BatchHeader) -> bool:
    return _is_readable(header) and header.compression is Compression.NONE


def _is_readable(header: BatchHeader) -> bool:
    is_known = header.attributes & _COMPRESSION_BITS <= Compression.ZSTD
    return is_known and not header.is_control and 0 <= header.record_count <= BATCH_RECORDS_MAX


def _overlapping_batches(stored: StoredBatches) -> Iterator[tuple[int, int, BatchHeader]]:
    """Yield the position, true base offset and header of each batch that may hold a record of the range."""
    base = stored.base_offset
    for position, header in walk(stored.data):
        next_offset = base + header.offset_span
        is_empty = not header.record_count and header.length == BATCH_HEADER_BYTES
        if not is_empty and base < stored.end_offset and next_offset > stored.start_offset:
            yield position, base, header
        base = next_offset


def _read_fields(data: Buffer, spans: Sequence[_Span]) -> _Fields:
    starts_of_spans: list[Integers] = []
    for span in spans:
        try:
            starts, end = find_records(data, span.position, span.header.record_count)
        except IndexError as error:
            raise DoubtfulBatchError("its records end behind the buffer") from error
        if end != span.end:
            raise DoubtfulBatchError("its records end elsewhere")
        starts_of_spans.append(starts)
    buffer: Bytes = np.frombuffer(data, np.uint8)
    lengths, at = read_varints(buffer, np.concatenate(starts_of_spans))
    ends = at + lengths
    attributes = buffer.take(at, mode="clip")
    time_deltas, at = read_varints(buffer, at + 1, LONG_BYTES_MAX)
    offset_deltas, at = read_varints(buffer, at)
    key_lengths, key_starts = read_varints(buffer, at)
    key_ends = key_starts + key_lengths  # a null key has the length -1, and no bytes
    value_lengths, value_starts = read_varints(buffer, np.maximum(key_starts, key_ends))
    value_ends = value_starts + value_lengths
    header_counts, headers_at = read_varints(buffer, np.maximum(value_starts, value_ends))
    counts = np.array([span.header.record_count for span in spans])
    is_sound = (lengths >= 0) & (key_lengths >= -1) & (value_lengths >= -1) & (header_counts >= 0)
    is_sound &= attributes < _ATTRIBUTES_END
    is_sound &= (key_ends <= ends) & (value_ends <= ends) & ((headers_at == ends) | (header_counts > 0))
    is_sound &= (headers_at <= ends) & (offset_deltas >= 0)
    is_sound &= offset_deltas <= _repeated([span.header.last_offset_delta for span in spans], counts)
    firsts = np.cumsum(counts) - counts
    rises = np.ones(len(ends), bool)
    rises[1:] = offset_deltas[1:] > offset_deltas[:-1]
    rises[firsts[counts > 0]] = True
    is_sound &= rises
    if not is_sound.all():
        raise DoubtfulBatchError(f"record {int(np.argmin(is_sound))} of the chunk is torn")
    is_log_time = [span.header.is_log_append_time for span in spans]
    times = _repeated([span.header.first_timestamp_ms for span in spans], counts) + time_deltas
    if any(is_log_time):
        log_times = _repeated([span.header.max_timestamp_ms for span in spans], counts)
        times = np.where(_repeated(is_log_time, counts), log_times, times)
    times = np.maximum(times, NO_TIME_MS)  # as the codec
    fields = _Fields(
        offsets=_repeated([span.base_offset for span in spans], counts) + offset_deltas,
        timestamps_ms=times,
        partitions=_repeated([span.stored.partition for span in spans], counts),
        timestamp_types=_repeated([_LOG_APPEND_TIME if each else _CREATE_TIME for each in is_log_time], counts),
        key_starts=key_starts,
        key_ends=key_ends,
        value_starts=value_starts,
        value_ends=value_ends,
        header_counts=header_counts,
        headers_at=headers_at,
        ends=ends,
    )
    return _trim_to_range(fields, spans, counts)


def _trim_to_range(fields: _Fields, spans: Sequence[_Span], counts: Integers) -> _Fields:
    """Keep only the records in the offset range of the read: the first and last batches hold more."""
    if all(
        span.stored.start_offset <= span.base_offset
        and span.base_offset + span.header.offset_span <= span.stored.end_offset
        for span in spans
    ):
        return fields
    is_inside = fields.offsets >= _repeated([span.stored.start_offset for span in spans], counts)
    is_inside &= fields.offsets < _repeated([span.stored.end_offset for span in spans], counts)
    return _Fields(**{name: getattr(fields, name)[is_inside] for name in _Fields.__slots__})


def _to_arrow(data: Buffer, topic: str, fields: _Fields, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    buffer = pa.py_buffer(data)
    rows = len(fields.ends)
    start = 0
    while start < rows:
        end = min(start + ARROW_ROWS_MAX, rows)
        fitting = int(np.searchsorted(fields.ends[start:end], int(fields.key_starts[start]) + ARROW_BYTES_MAX))
        end = start + max(1, fitting)
        part = slice(start, end)
        columns = [
            _gather(buffer, fields.key_starts[part], fields.key_ends[part]),
            _gather(buffer, fields.value_starts[part], fields.value_ends[part]),
            pa.repeat(pa.scalar(topic, pa.string()), end - start),
            pa.array(fields.partitions[part].astype(np.int32)),
            pa.array(fields.offsets[part]),
            spark_times(fields.timestamps_ms[part]),
            pa.array(fields.timestamp_types[part].astype(np.int32)),
        ]
        if len(schema) > len(columns):
            columns.append(headers_column(data, fields.headers_at[part], fields.header_counts[part], fields.ends[part]))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        start = end


def _gather(buffer: pa.Buffer, starts: Integers, ends: Integers) -> pa.Array:
    """A binary column of the bytes `[start, end)` of the buffer; null where the end lies before the start.

    Lay an array over the buffer whose even slots are the values and whose odd slots are the bytes between them. Taking
    the even slots copies each value once.
    """
    is_null = ends < starts
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts
    bounds[1::2] = np.maximum(starts, ends)
    slots = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), buffer])
    even_slots = pa.array(np.arange(0, len(bounds), 2, dtype=np.int32), mask=is_null if is_null.any() else None)
    return slots.take(even_slots)


def _repeated(values: Sequence[int] | Sequence[bool], counts: Integers) -> Integers:
    return np.repeat(np.array(values), counts)
