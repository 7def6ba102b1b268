"""A ref: where one partition's batches lie inside a segment, and which offsets they cover.

Owns the ref's bytes. A ref does not carry its base offset: refs stand in append order behind a known offset (the
tail's base, a page's base), and each covers `offset_span` offsets, so the base of each is the sum of those before.
That is what lets a writer append a ref before it knows its offset.

```
 0  version u8 = 1
 1  tier    u8      0 zonal, 1 archive
 2  zones   u8      bit i set: zone i (in configured order) confirmed the segment before the append was committed
 3  segment id      16 bytes
19  position u32    of the first batch inside the segment
23  length   u32    bytes of whole batches
27  offset_span  u32
31  record_count u32
35  max_timestamp_ms i64   -1: none
43
```
Big-endian throughout.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, SegmentId

_LAYOUT = struct.Struct(">BBB16sIIIIq")
_VERSION = 1
REF_BYTES = _LAYOUT.size


class Tier(IntEnum):
    """Which kind of bucket holds the segment."""

    ZONAL = 0
    ARCHIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """Batches of one partition inside one segment; `zones` is a bitmap by the configured order of zones."""

    segment_id: SegmentId
    position: int
    length: int
    offset_span: int
    record_count: int
    max_timestamp_ms: int
    zones: int
    tier: Tier = Tier.ZONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRef:
    """A ref with the offset of its first record; it covers `[base_offset, end_offset)`."""

    base_offset: Offset
    ref: Ref

    @property
    def end_offset(self) -> Offset:
        return Offset(self.base_offset + self.ref.offset_span)


def encode_ref(ref: Ref) -> bytes:
    """`REF_BYTES` bytes in the layout above."""
    return _LAYOUT.pack(
        _VERSION,
        ref.tier,
        ref.zones,
        ref.segment_id,
        ref.position,
        ref.length,
        ref.offset_span,
        ref.record_count,
        ref.max_timestamp_ms,
    )


def decode_ref(data: bytes) -> Ref:
    """The inverse of `encode_ref`. Raises CORRUPT_SEGMENT for bytes that are no ref of a known version."""
    return _decode_at(data, 0, len(data))


def encode_refs(refs: Iterable[Ref]) -> bytes:
    """Refs one behind the other, as a page holds them."""
    return b"".join(map(encode_ref, refs))


def decode_refs(data: bytes) -> tuple[Ref, ...]:
    """The inverse of `encode_refs`. Raises CORRUPT_SEGMENT as `decode_ref`."""
    if len(data) % REF_BYTES:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT, f"{len(data)} bytes of refs are no multiple of {REF_BYTES}: the index is damaged"
        )
    return tuple(_decode_at(data, position, REF_BYTES) for position in range(0, len(data), REF_BYTES))


def locate(base_offset: int, refs: Iterable[Ref]) -> Iterator[LocatedRef]:
    """The refs with their base offsets, the first beginning at `base_offset`."""
    for ref in refs:
        yield LocatedRef(base_offset=Offset(base_offset), ref=ref)
        base_offset += ref.offset_span


def span(refs: Sequence[Ref]) -> int:
    """How many offsets the refs cover together."""
    return sum(ref.offset_span for ref in refs)


def stored_bytes(refs: Iterable[Ref]) -> int:
    """How many bytes of segments the refs name together."""
    return sum(ref.length for ref in refs)


def _decode_at(data: bytes, position: int, length: int) -> Ref:
    if length != REF_BYTES or data[position] != _VERSION:
        raise PenstockError(
            ErrorCode.CORRUPT_SEGMENT,
            f"a ref of {length} bytes starting {data[position : position + 1].hex()!r} is not of a known version:"
            " the index is damaged or was written by a newer Penstock",
        )
    _, tier, zones, segment_id, at, size, offset_span, record_count, max_timestamp_ms = _LAYOUT.unpack_from(
        data, position
    )
    return Ref(
        segment_id=SegmentId(segment_id),
        position=at,
        length=size,
        offset_span=offset_span,
        record_count=record_count,
        max_timestamp_ms=max_timestamp_ms,
        zones=zones,
        tier=Tier(tier),
    )
