"""Records to batches and back, on aiokafka's compiled codec: the only module that looks inside a batch.

Its first use loads aiokafka (about 0.05 s), so no module on the path of a binary produce or fetch may use it. `import
penstock` does not load it (docs/adr/0024). Each record that it yields has passed the batch's CRC-32C, and has an
offset of the batch above the one before.
"""

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from operator import attrgetter, lt
from typing import Any, NamedTuple, Protocol

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_DEFAULT_MAX, BATCH_DECODED_BYTES_MAX, BATCH_RECORDS_MAX
from penstock_core.records.compression import compress, decompress_into
from penstock_core.records.record_batch import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    NO_TIME_MS,
    BatchHeader,
    BytesLike,
    Compression,
    crc_is_valid,
    parse_header,
    walk,
)
from penstock_core.records.record_walk import (
    check_header_count,
    check_long_records,
    claims_fit,
    may_have_too_many_headers,
)
from penstock_core.records.undecodable import undecodable

RECORD_OVERHEAD_BYTES_MAX = 21  # length, attributes, timestamp and offset of a record at their longest

_COMPRESSION_BITS = 0x07
_LENGTH_AT = 8
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_LAST_DELTA_AT = 23
_TIMES_AT = 27
_TIMES = struct.Struct(">qq")
# The compiled decoder checks its bounds before a number, not within it. It may read up to 11 bytes past the end.
_SLACK_BYTES = 16
_SCRATCH_BYTES = BATCH_HEADER_BYTES + BATCH_DECODED_BYTES_MAX + _SLACK_BYTES

# The garbage collector starts at 700 new objects. With so few at a time it seldom walks records that wait.
# Decoding whole batches of 10,000 runs at less than half the rate.
_CHUNK_RECORDS = 128
_time_of = attrgetter("timestamp")

Headers = Sequence[tuple[str, bytes | None]]
_NO_HEADERS: Headers = ()  # the default: it need not be copied


class Record(Protocol):
    """A record as `decode` yields it. A null value is a tombstone.

    These are the compiled codec's own objects, hence `timestamp` for milliseconds since 1970. A named tuple made of
    each takes more than half of the rate: measured at 100 B, it falls from 5.3 to 2.3 million records a second.
    """

    @property
    def offset(self) -> int:
        """The absolute offset."""

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970, -1 for none."""

    @property
    def key(self) -> bytes | None:
        """None for a record without a key."""

    @property
    def value(self) -> bytes | None:
        """None for a tombstone."""

    @property
    def headers(self) -> Headers:
        """In the producer's order; a name may occur twice."""


class UntimedRecord(NamedTuple):
    """A record whose batch gives it a timestamp below -1, which readers get as -1.

    The service takes such: a header tells the first time of its batch, and no least one. `stored_ms` is the timestamp.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    stored_ms: int


class NewRecord(NamedTuple):
    """A record that has no offset yet. Its time is in milliseconds since 1970, -1 for none."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def time_of(timestamp_ms: int | None, copied_ms: int) -> int:
    """The time of a record's copy: the record's own or, where it has none, the time of the copy.

    Everything that makes a record of a record asks this.
    """
    return copied_ms if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms


class BatchBuilder:
    """Records of one partition on their way into one batch.

    The batch stays below `batch_bytes`, compressed or not, unless its first record alone is larger. The builder takes
    that one whatever its size. The sender of the batch must compare `size_bytes` with the topic's `max_batch_bytes`.
    """

    __slots__ = ("_append", "_builder", "_compression", "_record_count", "_shift_ms")

    def __init__(
        self, compression: Compression = Compression.NONE, *, batch_bytes: int = BATCH_BYTES_DEFAULT_MAX
    ) -> None:
        # Uncompressed and without a producer, for the codec: `build` adds both.
        self._builder = _compiled().Builder(BATCH_MAGIC, Compression.NONE.value, 0, -1, -1, -1, batch_bytes)
        self._append = self._builder.append
        self._compression = compression
        self._record_count = 0
        self._shift_ms = 0

    @property
    def record_count(self) -> int:
        """The number of records so far."""
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """The batch's bytes before compression: `build` returns these many or fewer."""
        return int(self._builder.size())

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        """Add a record; False, and nothing changed, if the batch is full.

        Raises INVALID_REQUEST for a timestamp below -1, a value of a wrong type, and a header name that is no Unicode.
        """
        count = self._record_count
        if count == BATCH_RECORDS_MAX:
            return False
        try:
            if timestamp_ms < 0:
                if timestamp_ms < NO_TIME_MS:
                    raise ValueError(f"timestamp {timestamp_ms} is before 1970")
                if not count:  # -1 is what the compiled builder takes for "no record yet"
                    self._shift_ms = 1
            time_ms = timestamp_ms + self._shift_ms
            appended = self._append(count, time_ms, key, value, [] if headers is _NO_HEADERS else list(headers))
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"record {count} of the batch: {error}; give milliseconds since 1970 or -1 for none, bytes or None for"
                " key and value, and (str, bytes or None) tuples for headers",
            ) from error
        if appended is None:
            return False
        self._record_count = count + 1
        return True

    def build(self, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1) -> bytes:
        """The batch, with base offset 0; left uncompressed where compression would not make it smaller.

        May be called again, with another producer state or after further records. Raises INVALID_REQUEST if no
        record was appended.
        """
        if not self._record_count:
            raise PenstockError(ErrorCode.INVALID_REQUEST, "a batch without records: append one first")
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
        plain = self._builder.build()  # the builder's own bytearray: it cannot grow while a view of it lives
        if self._shift_ms:
            plain = bytearray(plain)
            _set_back(plain, self._shift_ms)
        with memoryview(plain) as view:
            if self._compression is Compression.NONE:
                return bytes(view)
            with view[BATCH_HEADER_BYTES:] as records:
                payload = compress(records, self._compression)
                return _compressed(view, payload, self._compression) if len(payload) < len(records) else bytes(view)


def encode(records: Iterable[NewRecord], compression: Compression = Compression.NONE) -> bytes:
    """One batch of all the records, in their order, with base offset 0.

    Raises INVALID_REQUEST if there is no record or one is malformed, RECORD_TOO_LARGE if one batch cannot hold them.
    """
    builder = BatchBuilder(compression, batch_bytes=BATCH_DECODED_BYTES_MAX)
    append = builder.append
    for timestamp_ms, key, value, headers in records:
        if not append(timestamp_ms, key, value, headers):
            raise PenstockError(
                ErrorCode.RECORD_TOO_LARGE,
                f"a batch holds {BATCH_RECORDS_MAX} records and {BATCH_DECODED_BYTES_MAX} bytes at most:"
                f" record {builder.record_count} does not fit, use several batches",
            )
    return builder.build()


def decode(data: BytesLike, note_bytes: Callable[[int], object] | None = None) -> Iterator[Record]:
    """Yields the records of one or more whole batches, in order. Offsets count from each batch's base offset.

    It decodes as the iteration goes on, and memory is bounded whatever the batches hold. It checks a batch's header,
    CRC and size before the first record, and each record when it is reached. It tells `note_bytes` the size of each
    batch without compression. Raises at the batch concerned:

    - CORRUPT_BATCH if it is torn, fails its CRC-32C, or does not hold what its header says;
    - UNSUPPORTED_FORMAT if it is of another magic, a control batch, or larger than `BATCH_RECORDS_MAX` records,
      `BATCH_HEADERS_MAX` headers or `BATCH_DECODED_BYTES_MAX`.

    A shortage of memory is MemoryError: it says nothing of the batch.
    The error of an undecodable batch (undecodable.py) has its offsets in its facts.
    """
    return chain.from_iterable(_decode_batches(data, note_bytes))


def keep_records(batch: BytesLike, is_kept: Callable[[Record], bool]) -> BytesLike | None:
    """One stored batch with only the records that `is_kept` keeps.

    It is the batch itself if all are kept, None if none is. Offsets, timestamps, the span, the compression and the
    producer's numbers stay. Records have the offsets that the batch's base offset gives them. Raises as `decode` and
    `with_records`.
    """
    header = parse_header(batch)
    records = list(decode(batch))
    kept = [record for record in records if is_kept(record)]
    if len(kept) == len(records):
        return batch
    if not kept:
        return None
    return with_records(header, kept)


def with_records(header: BatchHeader, records: Sequence[Record], end_offset: int | None = None) -> bytes:
    """A batch of some of the records of the batch with this header, at least one.

    Offsets, timestamps, the compression and the producer's numbers stay. So does the end, unless `end_offset` is
    given. Raises UNSUPPORTED_FORMAT for a record that the codec cannot write.
    """
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    builder = _compiled().Builder(BATCH_MAGIC, 0, 0, *producer, _SCRATCH_BYTES)
    # The builder takes no timestamp below 0. Records have theirs relative to the header's, so all may be written later,
    # and the header set back.
    shift_ms = max(0, *(-record.timestamp for record in records))
    try:
        for record in records:
            delta, time_ms = record.offset - header.base_offset, record.timestamp + shift_ms
            builder.append(delta, time_ms, record.key, record.value, list(record.headers))
    except (ValueError, OverflowError) as error:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT, f"a batch has a record that cannot be written again: {error}"
        ) from error
    plain = bytearray(builder.build())
    struct.pack_into(">q", plain, 0, header.base_offset)
    last_delta = header.last_offset_delta if end_offset is None else end_offset - header.base_offset - 1
    struct.pack_into(">i", plain, _LAST_DELTA_AT, last_delta)
    _set_back(plain, shift_ms)
    if header.compression is Compression.NONE:
        return bytes(plain)
    payload = compress(memoryview(plain)[BATCH_HEADER_BYTES:], header.compression)
    return _compressed(memoryview(plain), payload, header.compression)


def empty_batch(offset_span: int) -> bytes:
    """A batch that covers so many offsets and has no record. It is where compaction removed them all."""
    fields = (0, BATCH_HEADER_BYTES - 12, 0, BATCH_MAGIC, 0, 0, offset_span - 1, -1, -1, -1, -1, -1, 0)
    batch = bytearray(struct.pack(">qiibIhiqqqhii", *fields))
    struct.pack_into(">I", batch, _CRC_AT, crc32c(batch[_ATTRIBUTES_AT:]))
    return bytes(batch)


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The bytes that a record adds to a batch before compression, at most."""
    return RECORD_OVERHEAD_BYTES_MAX + int(_compiled().Builder.size_of(key, value, list(headers)))


class _Compiled(NamedTuple):
    Builder: Any
    Batch: Any
    Corrupt: type[Exception]


@cache
def _compiled() -> _Compiled:
    """Aiokafka's codec. Loading it at the first batch keeps `import penstock` short."""
    from penstock_core.records import compiled

    return _Compiled(compiled.DefaultRecordBatchBuilder, compiled.DefaultRecordBatch, compiled.CorruptRecordException)


def _set_back(plain: bytearray, shift_ms: int) -> None:
    """Sets the times of a batch without compression back, and its CRC right."""
    first_ms, newest_ms = _TIMES.unpack_from(plain, _TIMES_AT)
    _TIMES.pack_into(plain, _TIMES_AT, first_ms - shift_ms, newest_ms - shift_ms)
    struct.pack_into(">I", plain, _CRC_AT, crc32c(plain[_ATTRIBUTES_AT:]))


def _compressed(plain: memoryview, payload: bytes, compression: Compression) -> bytes:
    header = bytearray(plain[:BATCH_HEADER_BYTES])
    struct.pack_into(">i", header, _LENGTH_AT, BATCH_HEADER_BYTES + len(payload) - 12)
    struct.pack_into(">h", header, _ATTRIBUTES_AT, compression)
    struct.pack_into(">I", header, _CRC_AT, crc32c(payload, crc32c(header[_ATTRIBUTES_AT:])))
    return b"".join((header, payload))


def _decode_batches(data: BytesLike, note_bytes: Callable[[int], object] | None) -> Iterator[list[Record]]:
    view = memoryview(data)
    scratch: memoryview | None = None
    for position, header in walk(data):
        if not crc_is_valid(data, position, header):
            raise PenstockError(
                ErrorCode.CORRUPT_BATCH,
                f"batch at byte {position}: fails its CRC-32C ({header.crc:#010x} in the header): read it again",
            )
        try:
            _check_decodable(header)
            if header.compression is Compression.NONE:
                plain = _with_slack(view, position, position + header.length)
            else:
                # A page of it takes memory once it is written, so a small batch does not pay for the bound.
                scratch = _new_scratch() if scratch is None else scratch
                plain = _decompressed(view[position : position + header.length], header.compression, scratch)
            if note_bytes is not None:
                note_bytes(len(plain))
            yield from _decode_batch(plain, header)
        except PenstockError as error:
            raise undecodable(error, header) from error


def _check_decodable(header: BatchHeader) -> None:
    if header.is_control:
        raise PenstockError(ErrorCode.UNSUPPORTED_FORMAT, "it is a control batch, which holds markers and no records")
    if not 0 <= header.record_count <= BATCH_RECORDS_MAX:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"it says it has {header.record_count} records, and {BATCH_RECORDS_MAX} at most are read",
        )


def _new_scratch() -> memoryview:
    try:
        return memoryview(mmap.mmap(-1, _SCRATCH_BYTES))
    except OSError as error:
        raise MemoryError(f"no {_SCRATCH_BYTES} bytes to decompress a batch into: {error}") from error


def _with_slack(view: memoryview, start: int, end: int) -> memoryview:
    """The bytes `[start, end)`: a view if enough bytes follow them, else a copy."""
    if end + _SLACK_BYTES <= len(view):
        return view[start:end]
    return memoryview(bytes(view[start:end]) + bytes(_SLACK_BYTES))[: end - start]


def _decompressed(batch: memoryview, compression: Compression, scratch: memoryview) -> memoryview:
    """The batch without its compression, in `scratch`; its length and CRC are no longer right."""
    scratch[:BATCH_HEADER_BYTES] = batch[:BATCH_HEADER_BYTES]
    scratch[_ATTRIBUTES_AT + 1] &= ~_COMPRESSION_BITS & 0xFF
    output = scratch[BATCH_HEADER_BYTES : BATCH_HEADER_BYTES + BATCH_DECODED_BYTES_MAX]
    length = decompress_into(batch[BATCH_HEADER_BYTES:], compression, output)
    return scratch[: BATCH_HEADER_BYTES + length]


def _decode_batch(plain: memoryview, header: BatchHeader) -> Iterator[list[Record]]:
    # chain, because the compiled iterator refuses a second iter() and starts anew when it is asked past its end.
    compiled = _compiled()
    counts_headers, header_count = may_have_too_many_headers(plain[BATCH_HEADER_BYTES:]), 0
    if counts_headers:
        check_long_records(plain[BATCH_HEADER_BYTES:], header.record_count)
    records_left: Iterator[Record] = chain(compiled.Batch(plain))
    start_offset = header.base_offset
    while True:
        try:
            records = list(islice(records_left, _CHUNK_RECORDS))
        except (compiled.Corrupt, ValueError, OverflowError, MemoryError) as error:
            # The last two: a record that claims a length near 2**63. Any other shortage of memory says nothing of it.
            if isinstance(error, MemoryError) and claims_fit(plain[BATCH_HEADER_BYTES:], header.record_count):
                raise
            raise PenstockError(
                ErrorCode.CORRUPT_BATCH, f"its {header.record_count} records cannot be read ({error!s:.100})"
            ) from error
        if not records:
            return
        if counts_headers:
            header_count += sum([len(record.headers) for record in records])
            check_header_count(header_count)
        start_offset = _check_offsets([record.offset for record in records], start_offset, header.next_offset)
        yield records if min(map(_time_of, records)) >= NO_TIME_MS else [*map(_timed, records)]


def _timed(record: Record) -> Record:
    if record.timestamp >= NO_TIME_MS:
        return record
    return UntimedRecord(record.offset, NO_TIME_MS, record.key, record.value, record.headers, record.timestamp)


def _check_offsets(offsets: list[int], start_offset: int, end_offset: int) -> int:
    """Returns where the next offsets may start; raises CORRUPT_BATCH if these do not rise within `[start, end)`."""
    if offsets[0] < start_offset or offsets[-1] >= end_offset or not all(map(lt, offsets, islice(offsets, 1, None))):
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"its records have offsets from {offsets[0]} to {offsets[-1]}, not increasing within"
            f" [{start_offset}, {end_offset})",
        )
    return offsets[-1] + 1
