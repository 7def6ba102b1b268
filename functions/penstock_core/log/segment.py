"""The layout of a segment: one immutable object with the batches of many partitions, and a table of contents.

```
object                                            entry, 38 bytes              footer, 20 bytes, the object's last
 0             batches of part 0                   0 topic id          10 B     0 toc position u32
               batches of part 1                  10 partition         u32      4 toc length   u32
               …                                  14 position          u32      8 CRC-32C      u32
toc position   table of contents:                 18 length            u32     12 version      u16 = 1
               an entry per part                  22 offset span       u64     14 magic        "PNSTCK"
end - 20       footer                             30 max timestamp ms  i64     20
end                                               38
```
All numbers are big-endian. The CRC-32C covers the table of contents and the footer's first 8 bytes. Batches carry
their own. Readers that follow a ref never need the table. It lets a segment explain itself to the jobs that sweep,
scrub and merge, and to an operator who has lost the index. A reader fetches the last `SEGMENT_TAIL_BYTES`, and once
more if `Footer.tail_bytes` says that the table is longer.

Invariants: parts are contiguous from byte 0 in the order of the entries; none is empty; a change of layout changes
the version.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import BYTE_FORMATS, unsupported
from penstock_core.ids import TOPIC_ID_BYTES, Partition, TopicId
from penstock_core.records.record_batch import BytesLike, check_stored

SEGMENT_MAGIC = b"PNSTCK"
[SEGMENT_VERSION] = BYTE_FORMATS["segment"].writes
SEGMENT_FOOTER_BYTES = 20
SEGMENT_TAIL_BYTES = 16 * 1024  # a reader asks for so many first: they hold a table of 430 parts

_ENTRY = struct.Struct(f">{TOPIC_ID_BYTES}sIIIQq")
_TOC_BOUNDS = struct.Struct(">II")
_CHECKS = struct.Struct(">IH6s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """One partition's batches on their way into a segment. Nothing checks `data`; it is joined as it is."""

    topic_id: TopicId
    partition: Partition
    data: Sequence[BytesLike]
    offset_span: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TocEntry:
    """The place of one part in its segment, `[position, position + length)`, and the offsets that it covers."""

    topic_id: TopicId
    partition: Partition
    position: int
    length: int
    offset_span: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A built segment: the object's bytes, an entry per part in the order of the parts, and the body's CRC-32C."""

    body: bytes
    toc: tuple[TocEntry, ...]
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The place of the table of contents in the object, and the CRC-32C over it."""

    toc_position: int
    toc_length: int
    crc32c: int

    @property
    def tail_bytes(self) -> int:
        """The number of the object's last bytes that `parse_toc` needs."""
        return self.toc_length + SEGMENT_FOOTER_BYTES


def build_segment(parts: Sequence[SegmentPart]) -> Segment:
    """Lay out the parts in their order. Every batch is copied once, by one join. 4 GiB at most."""
    toc = _lay_out(parts)
    body = b"".join((*(buffer for part in parts for buffer in part.data), encode_end(toc)))
    return Segment(body=body, toc=toc, crc32c=crc32c(body))


def segment_bytes(parts: int, data_bytes: int) -> int:
    """The size of a segment of so many parts, with so many bytes of batches together."""
    return data_bytes + parts * _ENTRY.size + SEGMENT_FOOTER_BYTES


def encode_end(toc: Sequence[TocEntry]) -> bytes:
    """The bytes behind the batches: the table of contents and the footer."""
    toc_bytes = b"".join(
        _ENTRY.pack(
            bytes.fromhex(entry.topic_id),
            entry.partition,
            entry.position,
            entry.length,
            entry.offset_span,
            entry.max_timestamp_ms,
        )
        for entry in toc
    )
    bounds = _TOC_BOUNDS.pack(toc[-1].position + toc[-1].length if toc else 0, len(toc_bytes))
    checks = _CHECKS.pack(crc32c(bounds, crc32c(toc_bytes)), SEGMENT_VERSION, SEGMENT_MAGIC)
    return b"".join((toc_bytes, bounds, checks))


def parse_footer(tail: BytesLike) -> Footer:
    """The footer, from the last bytes of a segment (at least `SEGMENT_FOOTER_BYTES` of them).

    Raises CORRUPT_SEGMENT if they are not the end of a segment, UNSUPPORTED_FORMAT if its version is not known here.
    """
    if len(tail) < SEGMENT_FOOTER_BYTES:
        raise _corrupt(f"{len(tail)} bytes are not a segment's end: its footer has {SEGMENT_FOOTER_BYTES}")
    crc, version, magic = _CHECKS.unpack_from(tail, len(tail) - _CHECKS.size)
    if magic != SEGMENT_MAGIC:
        raise _corrupt(f"the last bytes are {magic!r}, a segment ends with {SEGMENT_MAGIC!r}: this is no segment")
    if version not in BYTE_FORMATS["segment"].reads:
        raise unsupported("segment", version)
    toc_position, toc_length = _TOC_BOUNDS.unpack_from(tail, len(tail) - SEGMENT_FOOTER_BYTES)
    return Footer(toc_position=toc_position, toc_length=toc_length, crc32c=crc)


def parse_toc(tail: BytesLike, footer: Footer) -> tuple[TocEntry, ...]:
    """The table of contents, from the last bytes of a segment (at least `footer.tail_bytes` of them).

    Raises CORRUPT_SEGMENT if its CRC-32C is wrong, or if its parts do not fill the segment up to it.
    """
    if len(tail) < footer.tail_bytes:
        raise _corrupt(f"{len(tail)} bytes of the segment's end, its table of contents takes {footer.tail_bytes}")
    toc_at = len(tail) - footer.tail_bytes
    covered = memoryview(tail)[toc_at : toc_at + footer.toc_length + _TOC_BOUNDS.size]
    if crc32c(covered) != footer.crc32c:
        raise _corrupt(f"the table of contents ({footer.toc_length} bytes) fails its CRC-32C: read another copy")
    if footer.toc_length % _ENTRY.size:
        raise _corrupt(f"a table of contents of {footer.toc_length} bytes: entries have {_ENTRY.size}")
    toc = tuple(
        TocEntry(
            topic_id=TopicId(topic_id.hex()),
            partition=Partition(partition),
            position=position,
            length=length,
            offset_span=offset_span,
            max_timestamp_ms=max_timestamp_ms,
        )
        for topic_id, partition, position, length, offset_span, max_timestamp_ms in _ENTRY.iter_unpack(
            covered[: footer.toc_length]
        )
    )
    _check_contiguous(toc, footer)
    return toc


def check_segment(body: BytesLike) -> tuple[TocEntry, ...]:
    """The table of contents of a whole segment, after a check of all of it.

    Checks the footer, the table, and every part by its batches' CRC-32C and the offsets that it covers. Raises
    CORRUPT_SEGMENT, and UNSUPPORTED_FORMAT as `parse_footer`.
    """
    footer = parse_footer(body)
    toc = parse_toc(body, footer)
    if footer.toc_position + footer.tail_bytes != len(body):
        raise _corrupt(f"{len(body)} bytes, the table of contents says {footer.toc_position + footer.tail_bytes}")
    with memoryview(body) as view:
        for entry in toc:
            check_stored(view[entry.position : entry.position + entry.length], entry.offset_span)
    return toc


def _lay_out(parts: Sequence[SegmentPart]) -> tuple[TocEntry, ...]:
    entries: list[TocEntry] = []
    position = 0
    for part in parts:
        length = sum(map(len, part.data))
        entries.append(
            TocEntry(
                topic_id=part.topic_id,
                partition=part.partition,
                position=position,
                length=length,
                offset_span=part.offset_span,
                max_timestamp_ms=part.max_timestamp_ms,
            )
        )
        position += length
    return tuple(entries)


def _check_contiguous(toc: tuple[TocEntry, ...], footer: Footer) -> None:
    position = 0
    for entry in toc:
        if entry.position != position:
            raise _corrupt(f"a part at byte {entry.position}, the one before it ends at {position}")
        position += entry.length
    if position != footer.toc_position:
        raise _corrupt(f"the parts end at byte {position}, the table of contents starts at {footer.toc_position}")


def _corrupt(message: str) -> PenstockError:
    return PenstockError(ErrorCode.CORRUPT_SEGMENT, message)
