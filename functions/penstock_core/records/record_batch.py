"""Batches by their headers: Kafka's RecordBatch v2, checked, walked and stamped without decoding a record.

This module owns the 61 bytes below. Its work is per batch, apart from one pass of CRC-32C at some 20 GB/s. So the cost
of a produce or a fetch does not grow with the number of records. It imports neither the record codec nor a compression
library. All numbers are big-endian.

```
 0  base offset            i64   outside the CRC: a producer sends any, `stamp` writes the true one
 8  length                 i32   of all that follows
12  partition leader epoch i32   outside the CRC, unused here
16  magic                  i8 = 2
17  CRC-32C                u32   of all that follows
21  attributes             i16   bits 0 to 2 compression, 3 log-append time, 4 transactional, 5 control
23  last offset delta      i32   the last record's offset less the base offset
27  first timestamp        i64   milliseconds since 1970
35  max timestamp          i64   -1: none
43  producer id            i64   -1: none
51  producer epoch         i16
53  base sequence          i32
57  record count           i32
61  records, compressed as the attributes say
```
Source: https://kafka.apache.org/documentation/#recordbatch
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_RECORDS_MAX, REF_RECORDS_MAX
from penstock_core.records.producer_state import SEQUENCE_MAX, ProducerSequence, merge_sequences

BytesLike: TypeAlias = bytes | bytearray | memoryview

BATCH_HEADER_BYTES = 61
BATCH_MAGIC = 2
NO_TIME_MS = -1  # the timestamp of a record without a time

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_MAGIC_AT = 16
_CRC_FROM = 21
_PREFIX_BYTES = 12  # base offset and length, which the length field does not count
_RECORD_BYTES_MIN = 7  # length, attributes, timestamp, offset, key, value and header count, one byte each

_COMPRESSION_BITS = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20


class Compression(IntEnum):
    """The compression of a batch's records, by Kafka's codes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> "Compression":
        """The compression of that lower-case name, as settings spell it. Raises INVALID_REQUEST."""
        for member in cls:
            if member.name.lower() == name:
                return member
        choices = ", ".join(member.name.lower() for member in cls)
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"compression {name!r}: use one of {choices}")


# The most that a byte can decompress to, by the formats: deflate's longest match takes 2 bits, Snappy's copy 3 bytes,
# LZ4 counts 255 with a byte, and a Zstandard block of 4 bytes holds 128 KiB.
_EXPANSION_MAX = {
    Compression.NONE: 1,
    Compression.GZIP: 1_032,
    Compression.SNAPPY: 22,
    Compression.LZ4: 255,
    Compression.ZSTD: 32_768,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """One batch's header. `length` is the whole batch in bytes, header and the 12 bytes before it included."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> Compression:
        """The compression of the records. Raises UNSUPPORTED_FORMAT for the codes 5 to 7, which Kafka does not use."""
        code = self.attributes & _COMPRESSION_BITS
        if code > Compression.ZSTD:
            raise PenstockError(ErrorCode.UNSUPPORTED_FORMAT, _unknown_compression(code))
        return Compression(code)

    @property
    def is_log_append_time(self) -> bool:
        """True if every record's timestamp is `max_timestamp_ms`, whatever the record says."""
        return bool(self.attributes & _LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """True if a Kafka transaction wrote the batch."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True if the batch holds Kafka's transaction markers and no records."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def offset_span(self) -> int:
        """The number of offsets that the batch covers: above `record_count` once compaction has removed records."""
        return self.last_offset_delta + 1

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesSummary:
    """The facts about one partition's batches that an append needs.

    `max_timestamp_ms` is -1 if no record has a time. `sequence` is that of all batches together, None if they come from
    no idempotent producer.
    """

    record_count: int
    offset_span: int
    max_timestamp_ms: int
    batch_count: int
    largest_batch_bytes: int
    sequence: ProducerSequence | None = None


def parse_header(data: BytesLike, position: int = 0) -> BatchHeader:
    """The header that starts at `position`; the records need not be there.

    Raises CORRUPT_BATCH if it is torn or its length or offset delta cannot be, UNSUPPORTED_FORMAT for another magic.
    """
    return _parse(data, position, len(data), f"batch at byte {position}")


def walk(data: BytesLike, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch's position and header, in order, until the batches have filled `[start, end)` exactly.

    Checks the structure, not the CRC. Raises CORRUPT_BATCH at a torn batch, UNSUPPORTED_FORMAT at another magic; the
    batches before it have been yielded by then.
    """
    end = len(data) if end is None else end
    position, index = start, 0
    while position < end:
        header = _parse(data, position, end, _name(index, position))
        if header.length > end - position:
            raise PenstockError(
                ErrorCode.CORRUPT_BATCH,
                f"{_name(index, position)} says it has {header.length} bytes, {end - position} are left:"
                " send whole batches",
            )
        yield position, header
        position += header.length
        index += 1


def crc_is_valid(data: BytesLike, position: int, header: BatchHeader) -> bool:
    """True if the CRC-32C of the whole batch at `position` is the one in its header. Copies nothing."""
    with memoryview(data) as view, view[position + _CRC_FROM : position + header.length] as covered:
        return crc32c(covered) == header.crc


def validate(data: BytesLike) -> BatchesSummary:
    """Check the batches that a producer sent for one partition, without decoding a record.

    There must be at least one batch. Each must be whole, of magic 2 and right CRC-32C, with nothing but a known
    compression in its attributes. Each must have 1 to `BATCH_RECORDS_MAX` records, dense offsets and possible
    timestamps. All must be from one producer, in sequence, or from none. Raises CORRUPT_BATCH, INVALID_TIMESTAMP or
    UNSUPPORTED_FORMAT with the batch, its position, the value found and the way out.
    """
    record_count, max_timestamp_ms, batch_count, largest_batch_bytes = 0, -1, 0, 0
    sequences: list[ProducerSequence | None] = []
    for position, header in walk(data):
        _check_produced(data, position, header, _name(batch_count, position))
        sequences.append(_sequence(header, _name(batch_count, position)))
        record_count += header.record_count
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
        batch_count += 1
        largest_batch_bytes = max(largest_batch_bytes, header.length)
    if record_count > REF_RECORDS_MAX:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{batch_count} batches say they have {record_count} records: send {REF_RECORDS_MAX} at most at once",
        )
    if not batch_count:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH, "0 bytes and no batch: send at least one batch, or no entry at all"
        )
    return BatchesSummary(
        record_count=record_count,
        offset_span=record_count,  # _check_produced holds that each batch is dense
        max_timestamp_ms=max_timestamp_ms,
        batch_count=batch_count,
        largest_batch_bytes=largest_batch_bytes,
        sequence=merge_sequences(sequences),
    )


def stamp(data: bytearray | memoryview, base_offset: int) -> int:
    """Write true base offsets into all batches of `data`, in place and consecutive; return the next offset.

    CRCs stay right, since they do not cover the base offset. Raises as `walk` does. The batches before the bad one are
    stamped by then.
    """
    offset = base_offset
    for position, header in walk(data):
        _BASE_OFFSET.pack_into(data, position, offset)
        offset += header.offset_span
    return offset


def check_stored(data: BytesLike, offset_span: int) -> None:
    """Check that stored bytes are what a ref says: whole batches, CRCs right, covering exactly `offset_span` offsets.

    Raises CORRUPT_SEGMENT. Another zone's copy may be whole.
    """
    found_span = 0
    try:
        for position, header in walk(data):
            if not crc_is_valid(data, position, header):
                raise PenstockError(ErrorCode.CORRUPT_BATCH, f"batch at byte {position} fails its CRC-32C")
            found_span += header.offset_span
    except PenstockError as error:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT, f"stored range of {len(data)} bytes: {error.message}; read another copy"
        ) from error
    if found_span != offset_span:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT,
            f"stored range of {len(data)} bytes covers {found_span} offsets, its ref says {offset_span};"
            " read another copy",
        )


def _parse(data: BytesLike, position: int, end: int, name: str) -> BatchHeader:
    available = end - position
    # Older formats can be shorter than a header of this one: the magic byte first, for the better message.
    if available > _MAGIC_AT and data[position + _MAGIC_AT] != BATCH_MAGIC:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{name} has magic {data[position + _MAGIC_AT]}: send Kafka's RecordBatch v2 (magic {BATCH_MAGIC})",
        )
    if available < BATCH_HEADER_BYTES:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"{name} is torn: {available} bytes are left, a header takes {BATCH_HEADER_BYTES}; send whole batches",
        )
    fields = _HEADER.unpack_from(data, position)
    header = BatchHeader(
        base_offset=fields[0],
        length=fields[1] + _PREFIX_BYTES,
        partition_leader_epoch=fields[2],
        magic=fields[3],
        crc=fields[4],
        attributes=fields[5],
        last_offset_delta=fields[6],
        first_timestamp_ms=fields[7],
        max_timestamp_ms=fields[8],
        producer_id=fields[9],
        producer_epoch=fields[10],
        base_sequence=fields[11],
        record_count=fields[12],
    )
    if header.length < BATCH_HEADER_BYTES or header.last_offset_delta < 0:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"{name} says it has {header.length} bytes and last offset delta {header.last_offset_delta}:"
            f" at least {BATCH_HEADER_BYTES} and 0 are needed; build it again",
        )
    return header


def _check_produced(data: BytesLike, position: int, header: BatchHeader, name: str) -> None:
    # The CRC first: a flipped bit is then reported as a flipped bit, and not by the value that it makes.
    if not crc_is_valid(data, position, header):
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"{name} fails its CRC-32C ({header.crc:#010x} in the header): it was changed on the way, send it again",
        )
    _check_attributes(header, name)
    count = header.record_count
    if count > BATCH_RECORDS_MAX:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{name} has {count} records: at most {BATCH_RECORDS_MAX} are allowed, send smaller batches",
        )
    if header.last_offset_delta != count - 1:  # the delta is not negative, so there is a record
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"{name} says it has {count} records and last offset delta {header.last_offset_delta}:"
            " one record or more with dense offsets are needed, build it again",
        )
    # Without this a few bytes could claim a million offsets.
    payload_bytes = header.length - BATCH_HEADER_BYTES
    if count * _RECORD_BYTES_MIN > payload_bytes * _EXPANSION_MAX[header.compression]:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH, f"{name} says it has {count} records in {payload_bytes} bytes: build it again"
        )
    if not NO_TIME_MS <= header.first_timestamp_ms <= header.max_timestamp_ms:
        raise PenstockError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{name} has first timestamp {header.first_timestamp_ms} and max timestamp {header.max_timestamp_ms}:"
            " send milliseconds since 1970, or -1 for none",
        )


def _sequence(header: BatchHeader, name: str) -> ProducerSequence | None:
    if header.producer_id == -1:
        return None
    last = header.base_sequence + header.record_count - 1
    if header.producer_id < 0 or header.producer_epoch < 0 or not 0 <= header.base_sequence <= last <= SEQUENCE_MAX:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH,
            f"{name} has producer id {header.producer_id}, epoch {header.producer_epoch} and base sequence "
            f"{header.base_sequence} for {header.record_count} records: send a producer id of -1 for none, or no "
            f"negative number and sequences up to {SEQUENCE_MAX}; then go on as a new producer, from 0",
        )
    return ProducerSequence(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        last_sequence=last,
        checksum=header.crc,
    )


def _check_attributes(header: BatchHeader, name: str) -> None:
    code = header.attributes & _COMPRESSION_BITS
    if code > Compression.ZSTD:
        raise PenstockError(ErrorCode.UNSUPPORTED_FORMAT, f"{name}: {_unknown_compression(code)}")
    if header.attributes != code:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{name} has attributes {header.attributes & 0xFFFF:#06x}: control, transactional and log-append-time"
            " batches are not taken from producers, only the compression bits (0 to 2) may be set",
        )


def _unknown_compression(code: int) -> str:
    return (
        f"compression code {code}: use {', '.join(f'{member.value} ({member.name.lower()})' for member in Compression)}"
    )


def _name(index: int, position: int) -> str:
    return f"batch {index} at byte {position}"
