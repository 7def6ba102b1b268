"""A ref: where one partition's batches lie inside a segment, and which offsets they cover.

Owns the ref's bytes. A ref does not carry its base offset. Refs stand in append order behind a known offset, the tail's
base or a page's base, and each covers `offset_span` offsets. So the base of each is the sum of the spans before it.
This lets a writer append a ref before it knows its offset.

```
 0  version u8      1, or 2 if a producer follows
 1  tier    u8      0 zonal, 1 archive
 2  zones   u8      bit i set: zone i (in configured order) confirmed the segment before the append was committed
 3  segment id      16 bytes
19  position u32    of the first batch inside the segment
23  length   u32    bytes of whole batches
27  offset_span  u32
31  record_count u32
35  max_timestamp_ms i64   -1: none
43  producer id    i64      version 2 only, as the two below
51  producer epoch u16
53  first sequence u32      the last one follows from the span
57
```
Big-endian throughout.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import BYTE_FORMATS
from penstock_core.ids import Offset, SegmentId
from penstock_core.records.producer_state import ProducerSequence

_LAYOUT = struct.Struct(">BBB16sIIIIq")
_PRODUCER = struct.Struct(">qHI")
_PLAIN, _WITH_PRODUCER = 1, 2
REF_BYTES = _LAYOUT.size
REF_BYTES_MAX = REF_BYTES + _PRODUCER.size
_BYTES = {_PLAIN: REF_BYTES, _WITH_PRODUCER: REF_BYTES_MAX}
assert _BYTES.keys() == BYTE_FORMATS["ref"].reads


class Tier(IntEnum):
    """The kind of bucket that holds the segment."""

    ZONAL = 0
    ARCHIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """Batches of one partition inside one segment.

    `zones` is a bitmap by the configured order of zones. `sequence` tells which records of their idempotent producer
    the batches hold, and covers `offset_span` of them. It is None for batches of no such producer.
    """

    segment_id: SegmentId
    position: int
    length: int
    offset_span: int
    record_count: int
    max_timestamp_ms: int
    zones: int
    tier: Tier = Tier.ZONAL
    sequence: ProducerSequence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRef:
    """A ref with the offset of its first record; it covers `[base_offset, end_offset)`."""

    base_offset: Offset
    ref: Ref

    @property
    def end_offset(self) -> Offset:
        """The offset behind the ref's last record."""
        return Offset(self.base_offset + self.ref.offset_span)


def encode_ref(ref: Ref) -> bytes:
    """`REF_BYTES` or `REF_BYTES_MAX` bytes in the layout above."""
    data = _LAYOUT.pack(
        _PLAIN if ref.sequence is None else _WITH_PRODUCER,
        ref.tier,
        ref.zones,
        ref.segment_id,
        ref.position,
        ref.length,
        ref.offset_span,
        ref.record_count,
        ref.max_timestamp_ms,
    )
    if ref.sequence is None:
        return data
    return data + _PRODUCER.pack(ref.sequence.producer_id, ref.sequence.epoch, ref.sequence.first_sequence)


def decode_ref(data: bytes) -> Ref:
    """The inverse of `encode_ref`. Raises CORRUPT_SEGMENT for bytes that are no ref of a known version."""
    refs = decode_refs(data)
    if len(refs) != 1:
        raise _damaged(data, 0)
    return refs[0]


def encode_refs(refs: Iterable[Ref]) -> bytes:
    """Refs one behind the other, as a page holds them."""
    return b"".join(map(encode_ref, refs))


def decode_refs(data: bytes) -> tuple[Ref, ...]:
    """The inverse of `encode_refs`. Raises CORRUPT_SEGMENT as `decode_ref`."""
    refs: list[Ref] = []
    position = 0
    while position < len(data):
        size = _BYTES.get(data[position])
        if size is None or len(data) - position < size:
            raise _damaged(data, position)
        refs.append(_decode_at(data, position))
        position += size
    return tuple(refs)


def locate(base_offset: int, refs: Iterable[Ref]) -> Iterator[LocatedRef]:
    """The refs with their base offsets, the first beginning at `base_offset`."""
    for ref in refs:
        yield LocatedRef(base_offset=Offset(base_offset), ref=ref)
        base_offset += ref.offset_span


def span(refs: Sequence[Ref]) -> int:
    """The number of offsets that the refs cover together."""
    return sum(ref.offset_span for ref in refs)


def stored_bytes(refs: Iterable[Ref]) -> int:
    """The number of bytes of segments that the refs name together."""
    return sum(ref.length for ref in refs)


def _decode_at(data: bytes, position: int) -> Ref:
    version, tier, zones, segment_id, at, length, offset_span, record_count, max_timestamp_ms = _LAYOUT.unpack_from(
        data, position
    )
    sequence = None
    if version == _WITH_PRODUCER:
        producer_id, epoch, first_sequence = _PRODUCER.unpack_from(data, position + REF_BYTES)
        sequence = ProducerSequence(
            producer_id=producer_id,
            epoch=epoch,
            first_sequence=first_sequence,
            last_sequence=first_sequence + offset_span - 1,
        )
    return Ref(
        segment_id=SegmentId(segment_id),
        position=at,
        length=length,
        offset_span=offset_span,
        record_count=record_count,
        max_timestamp_ms=max_timestamp_ms,
        zones=zones,
        tier=Tier(tier),
        sequence=sequence,
    )


def _damaged(data: bytes, position: int) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT,
        f"byte {position} of {len(data)} bytes of refs starts {data[position : position + 1].hex()!r} and no ref of a "
        "known version: the index is damaged or was written by a newer Penstock",
    )
