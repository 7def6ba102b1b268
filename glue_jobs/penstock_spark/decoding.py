"""Batches to Arrow without a Python object per record.

```
 stored batches ──spans──▶ one buffer, and where each batch's records lie in it
                ──walk_records──▶ where each record begins and ends
                ──read_varints──▶ NumPy arrays: timestamps, offsets, where keys and values begin and end
                ──take──▶ Arrow columns, copied once, in C++
```
Only records with headers are looked at one by one, and only if headers are asked for. Batches may have gaps and may be
empty, as compaction leaves them: a record's offset is its batch's base and its own delta.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock_core.compression import decompress_into
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, BATCH_RECORDS_MAX, MIB
from penstock_core.record_batch import BATCH_HEADER_BYTES, BatchHeader, Compression, walk
from penstock_spark.headers import headers_column
from penstock_spark.varints import Bytes, Integers, read_varints, walk_records

ARROW_ROWS_MAX = 4096  # facts: below a thousand rows Spark pays for the batch, above ten thousand for memory
ARROW_BYTES_MAX = 16 * MIB  # a batch holds one record at least, whatever its size
CHUNK_BYTES = 4 * MIB  # what is decoded at once, if it does not come in larger ranges or batches
UNCOPIED_BYTES = 2 * MIB

Buffer: TypeAlias = bytes | mmap.mmap

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MS_MAX = 2**63 // 1_000  # what Spark can hold, in the year 294247
_CREATE_TIME, _LOG_APPEND_TIME = 0, 1  # Kafka's TimestampType


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes of whole batches of one partition, the first at `base_offset`; wanted are the records in
    `[start_offset, end_offset)`."""

    topic: str
    partition: int
    data: bytes
    base_offset: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Where one batch's records lie in a chunk's buffer, uncompressed, and what its header says of them."""

    stored: Stored
    header: BatchHeader
    base_offset: int
    position: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """What was read of a chunk's records: one entry per record in each array. A key or value whose end lies before its
    start is null."""

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


def decode(stored: Iterable[Stored], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The wanted records, in the order given, in batches of `ARROW_ROWS_MAX` rows and about `ARROW_BYTES_MAX` at most.

    CRCs are not looked at: whoever reads the bytes has checked them. Raises CORRUPT_SEGMENT where a batch does not hold
    what its header says, UNSUPPORTED_FORMAT where it is a control batch or decompresses to too much.
    """
    for buffer, spans in _chunks(stored):
        if spans:
            fields = _read_fields(buffer, spans)
            yield from _to_arrow(buffer, spans[0].stored.topic, fields, schema)


def _chunks(stored: Iterable[Stored]) -> Iterator[tuple[Buffer, list[_Span]]]:
    """Buffers with the records of one topic, uncompressed, and their batches. A buffer holds until the next is asked
    for: small ranges and compressed batches are gathered in one that is used again and again. A large range without
    compression is a buffer of its own, and not copied."""
    # Its pages become memory when they are written, so small ranges do not pay for the bounds.
    scratch = mmap.mmap(-1, CHUNK_BYTES + BATCH_DECODED_BYTES_MAX)
    spans: list[_Span] = []
    fill = 0
    for each in stored:
        batches = list(_wanted(each))
        is_large = len(each.data) >= UNCOPIED_BYTES and all(_is_plain(header) for _, _, header in batches)
        if spans and (is_large or each.topic != spans[0].stored.topic):
            yield scratch, spans
            spans, fill = [], 0
        if is_large:
            yield each.data, [_span(each, base, header, at + BATCH_HEADER_BYTES) for at, base, header in batches]
            continue
        for at, base, header in batches:
            with memoryview(each.data) as data, data[at + BATCH_HEADER_BYTES : at + header.length] as payload:
                length = _put(payload, header, scratch, fill)
            spans.append(_span(each, base, header, fill, length))
            fill += length
            if fill >= CHUNK_BYTES:
                yield scratch, spans
                spans, fill = [], 0
    if spans:
        yield scratch, spans


def _put(payload: memoryview, header: BatchHeader, scratch: mmap.mmap, position: int) -> int:
    """Writes a batch's records, uncompressed, to `position`; how many bytes they are."""
    with memoryview(scratch) as whole, whole[position : position + BATCH_DECODED_BYTES_MAX] as output:
        if not _is_plain(header):
            return decompress_into(payload, header.compression, output)
        if len(payload) > len(output):
            raise PenstockError(
                ErrorCode.UNSUPPORTED_FORMAT, f"a batch of {len(payload)} bytes: {len(output)} at most are read"
            )
        output[: len(payload)] = payload
        return len(payload)


def _span(stored: Stored, base: int, header: BatchHeader, position: int, length: int | None = None) -> _Span:
    length = header.length - BATCH_HEADER_BYTES if length is None else length
    return _Span(stored=stored, header=header, base_offset=base, position=position, end=position + length)


def _is_plain(header: BatchHeader) -> bool:
    return header.compression is Compression.NONE


def _wanted(stored: Stored) -> Iterator[tuple[int, int, BatchHeader]]:
    """Position, true base offset and header of each batch that may hold a wanted record."""
    base = stored.base_offset
    for position, header in walk(stored.data):
        next_offset = base + header.offset_span
        if header.record_count and base < stored.end_offset and next_offset > stored.start_offset:
            _check(stored, base, header)
            yield position, base, header
        base = next_offset


def _check(stored: Stored, base: int, header: BatchHeader) -> None:
    if header.is_control:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{_name(stored, base)} is a control batch: it holds markers, no records",
        )
    if not 0 <= header.record_count <= BATCH_RECORDS_MAX:
        raise _corrupt(stored, base, f"says it has {header.record_count} records")


def _read_fields(data: Buffer, spans: Sequence[_Span]) -> _Fields:
    record_starts: list[int] = []
    for span in spans:
        try:
            end = walk_records(data, span.position, span.header.record_count, record_starts)
        except IndexError as error:
            raise _corrupt(span.stored, span.base_offset, f"its records cannot be followed: {error}") from error
        if end != span.end:
            count = span.header.record_count
            raise _corrupt(span.stored, span.base_offset, f"its {count} records end at byte {end}, not {span.end}")
    buffer: Bytes = np.frombuffer(data, np.uint8)
    lengths, at = read_varints(buffer, np.array(record_starts, np.int64))
    ends = at + lengths
    time_deltas, at = read_varints(buffer, at + 1)  # behind the attributes, which Kafka does not use
    offset_deltas, at = read_varints(buffer, at)
    key_lengths, key_starts = read_varints(buffer, at)
    key_ends = key_starts + key_lengths  # a null key has the length -1, and no bytes
    value_lengths, value_starts = read_varints(buffer, np.maximum(key_starts, key_ends))
    value_ends = value_starts + value_lengths
    header_counts, headers_at = read_varints(buffer, np.maximum(value_starts, value_ends))
    counts = np.array([span.header.record_count for span in spans])
    is_sound = (lengths >= 0) & (key_lengths >= -1) & (value_lengths >= -1) & (header_counts >= 0)
    is_sound &= (key_ends <= ends) & (value_ends <= ends) & ((headers_at == ends) | (header_counts > 0))
    is_sound &= (headers_at <= ends) & (offset_deltas >= 0)
    is_sound &= offset_deltas <= _repeated([span.header.last_offset_delta for span in spans], counts)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    rises = np.ones(len(ends), bool)
    rises[1:] = offset_deltas[1:] > offset_deltas[:-1]
    rises[starts] = True
    is_sound &= rises
    if not is_sound.all():
        row = int(np.argmin(is_sound))
        span = spans[int(np.searchsorted(starts, row, "right")) - 1]
        raise _corrupt(span.stored, span.base_offset, f"record {row - int(starts[spans.index(span)])} is torn")
    is_log_time = [span.header.is_log_append_time for span in spans]
    times = _repeated([span.header.first_timestamp_ms for span in spans], counts) + time_deltas
    if any(is_log_time):
        log_times = _repeated([span.header.max_timestamp_ms for span in spans], counts)
        times = np.where(_repeated(is_log_time, counts), log_times, times)
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
    return _without_unwanted(fields, spans, counts)


def _without_unwanted(fields: _Fields, spans: Sequence[_Span], counts: Integers) -> _Fields:
    """Only the records whose offsets are wanted: batches at the ends of what is asked for hold more."""
    if all(
        span.stored.start_offset <= span.base_offset
        and span.base_offset + span.header.offset_span <= span.stored.end_offset
        for span in spans
    ):
        return fields
    is_wanted = fields.offsets >= _repeated([span.stored.start_offset for span in spans], counts)
    is_wanted &= fields.offsets < _repeated([span.stored.end_offset for span in spans], counts)
    return _Fields(**{name: getattr(fields, name)[is_wanted] for name in _Fields.__slots__})


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
            pa.array(np.clip(fields.timestamps_ms[part], -_MS_MAX, _MS_MAX) * 1_000).cast(_TIMESTAMP),
            pa.array(fields.timestamp_types[part].astype(np.int32)),
        ]
        if len(schema) > len(columns):
            columns.append(headers_column(data, fields.headers_at[part], fields.header_counts[part], fields.ends[part]))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        start = end


def _gather(buffer: pa.Buffer, starts: Integers, ends: Integers) -> pa.Array:
    """A binary column of the bytes `[start, end)` of the buffer; null where the end lies before the start.

    Over the buffer lies an array whose even slots are the values and whose odd ones what is between them; the even ones
    are taken, which copies each value once.
    """
    is_null = ends < starts
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts
    bounds[1::2] = np.maximum(starts, ends)
    slots = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), buffer])
    wanted = pa.array(np.arange(0, len(bounds), 2, dtype=np.int32), mask=is_null if is_null.any() else None)
    return slots.take(wanted)


def _repeated(values: Sequence[int] | Sequence[bool], counts: Integers) -> Integers:
    return np.repeat(np.array(values), counts)


def _name(stored: Stored, base_offset: int) -> str:
    return f"the batch at offset {base_offset} of partition {stored.partition} of topic {stored.topic!r}"


def _corrupt(stored: Stored, base_offset: int, what: str) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"{_name(stored, base_offset)}: {what}; its producer built it wrongly"
    )
