"""A ref: where one partition's batches lie inside a segment, and which offsets they cover.

Owns the ref's bytes. A ref does not carry its base offset. Refs follow in append order after a known offset, the tail's
base or a page's base, and each covers `offset_span` offsets. So the base of each is the sum of the spans before it.
This lets a writer append a ref before it knows its offset.

```
 0  version u8      1; 2 if a producer follows; 3 if flags follow, which tell the rest; 4 as 3, of tier 2; 5 as 3,
                   not delayed; 6 as 4, of tier 3; 7 of any tier, with records that may expire
 1  tier    u8      0 zonal, 1 archive, 2 inline, 3 expiring
 2  zones   u8      bit i set: zone i (in configured order) confirmed the segment before the append was committed
 3  segment id      16 bytes
19  position u32    of the first batch inside the segment
23  length   u32    bytes of whole batches
27  offset_span  u32
31  record_count u32
35  max_timestamp_ms i64   -1: none
43  in version 2: the producer
    in versions 3 to 7: flags u8, in tier 3 kept_days u8, then the fields whose bits are set, in this order
      bit 0   producer          14 bytes   id i64, epoch u16, first sequence u32 (the last one follows from the span)
      bit 1   tag filter        u64        Bloom filter of the records' `tag` headers (filters/tag_filter.py)
      bit 2   appended_ms       i64        when the newest records were appended; in version 3, some were delayed
      bit 3   in version 7: some records were delayed; no field
```
Big-endian throughout. Each ref has one encoding. Version 3 is written only where bit 1 is set, or bit 2 for delayed
records. Version 5 is written where bit 2 is set and no record was delayed. A reader refuses both otherwise. All refs of
tier 2 have version 4, those of tier 3 version 6, and no other ref has these: a release that does not know the tier
refuses them as a whole (docs/adr/0064). Delayed records are never of these tiers. A ref whose records may expire has
version 7 in each tier, and no other ref has it (docs/adr/0084).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import BYTE_FORMATS
from penstock_core.ids import Offset, SegmentId, segment_time_ms
from penstock_core.records.producer_state import ProducerSequence

_LAYOUT = struct.Struct(">BBB16sIIIIq")
_PRODUCER = struct.Struct(">qHI")
_TAG_FILTER = struct.Struct(">Q")
_APPENDED = struct.Struct(">q")
DAY_MS = 24 * 3_600_000
_PLAIN, _WITH_PRODUCER, _WITH_FLAGS, _INLINE, _DATED, _EXPIRING, _MAY_EXPIRE = 1, 2, 3, 4, 5, 6, 7
_HAS_PRODUCER, _HAS_TAG_FILTER, _HAS_APPENDED, _IS_DELAYED = 1, 2, 4, 8
assert {
    _PLAIN,
    _WITH_PRODUCER,
    _WITH_FLAGS,
    _INLINE,
    _DATED,
    _EXPIRING,
    _MAY_EXPIRE,
} == BYTE_FORMATS["ref"].reads

REF_BYTES = _LAYOUT.size
REF_WITH_PRODUCER_BYTES = REF_BYTES + _PRODUCER.size
REF_BYTES_MAX = REF_WITH_PRODUCER_BYTES + 2 + _TAG_FILTER.size + _APPENDED.size
_BYTES = {_PLAIN: REF_BYTES, _WITH_PRODUCER: REF_WITH_PRODUCER_BYTES}
_BYTES_BY_FLAGS = {
    flags: REF_BYTES
    + 1
    + (_PRODUCER.size if flags & _HAS_PRODUCER else 0)
    + (_TAG_FILTER.size if flags & _HAS_TAG_FILTER else 0)
    + (_APPENDED.size if flags & _HAS_APPENDED else 0)
    for flags in range(8)
}
_LEAST_FLAGS = {_WITH_FLAGS: _HAS_TAG_FILTER, _INLINE: 0, _DATED: _HAS_APPENDED, _EXPIRING: 0, _MAY_EXPIRE: 0}
_REFS_REMEMBERED = 4_096  # by one instance, some 400 bytes each


class Tier(IntEnum):
    """The kind of place that holds the segment: buckets of zones, the archive's bucket, or an item of the log table.

    An append puts all but archived segments, so the ids of these tell when its records came. Compaction and the
    scheduling of delayed records put segments into the archive. DynamoDB removes an expiring item by its TTL, and the
    sweep an inline one.
    """

    ZONAL = 0
    ARCHIVE = 1
    INLINE = 2
    EXPIRING = 3

    @property
    def is_item(self) -> bool:
        """True if an item of the log table holds the segment."""
        return self in _OF_ITEMS


_OF_ITEMS = frozenset((Tier.INLINE, Tier.EXPIRING))
_VERSIONS_OF_ITEMS = {Tier.INLINE: _INLINE, Tier.EXPIRING: _EXPIRING}
_ITEM_TIERS = frozenset(bytes((tier,)) for tier in _OF_ITEMS)
_OF_TTL = bytes((Tier.EXPIRING,))
_TIERS_OF_VERSIONS = {version: bytes((tier,)) for tier, version in _VERSIONS_OF_ITEMS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """Batches of one partition inside one segment.

    `zones` is a bitmap by the configured order of zones. `sequence` tells which records of their idempotent producer
    the batches hold, and covers `offset_span` of them. It is None for batches of no such producer.

    `tag_filter` is the 64-bit Bloom filter of the `tag` headers of all these records, 0 if no record has one. None
    means that the tags are unknown.

    `appended_ms` is when the newest of the records were appended, for delayed ones delivered. None means that the
    segment's id tells it. A ref that was rewritten has the newest time of all that it covers. `is_delayed` says that
    some of the records were delayed; then `appended_ms` is set.

    An expiring item may be gone `kept_days` after the time in its segment's id (`kept_until_ms`). 0 for other tiers.

    `may_expire`: some of the records may have the header of an expiry (records/expiry.py). Without it none of them
    expires, and no reader decodes the batches to find out.
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
    tag_filter: int | None = None
    appended_ms: int | None = None
    is_delayed: bool = False
    kept_days: int = 0
    may_expire: bool = False

    @property
    def kept_until_ms(self) -> int:
        """The TTL of an expiring item: from then on DynamoDB may remove it."""
        return segment_time_ms(self.segment_id) + self.kept_days * DAY_MS


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
    """`REF_BYTES` to `REF_BYTES_MAX` bytes in the layout above."""
    flags = _flags_of(ref)
    data = _LAYOUT.pack(
        _version_of(ref, flags),
        ref.tier,
        ref.zones,
        ref.segment_id,
        ref.position,
        ref.length,
        ref.offset_span,
        ref.record_count,
        ref.max_timestamp_ms,
    )
    if flags or ref.tier.is_item or ref.may_expire:
        data += bytes((flags, ref.kept_days) if ref.tier is Tier.EXPIRING else (flags,))
    if ref.sequence is not None:
        data += _PRODUCER.pack(ref.sequence.producer_id, ref.sequence.epoch, ref.sequence.first_sequence)
    if ref.tag_filter is not None:
        data += _TAG_FILTER.pack(ref.tag_filter)
    if ref.appended_ms is not None:
        data += _APPENDED.pack(ref.appended_ms)
    return data


@lru_cache(_REFS_REMEMBERED)  # an append gets the whole tail back, most of which its instance has met before
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
        size = _size_at(data, position)
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


def _version_of(ref: Ref, flags: int) -> int:
    if ref.may_expire:
        return _MAY_EXPIRE
    if ref.tier.is_item:
        return _VERSIONS_OF_ITEMS[ref.tier]
    if ref.appended_ms is not None and not ref.is_delayed:
        return _DATED
    return _WITH_FLAGS if flags else _PLAIN if ref.sequence is None else _WITH_PRODUCER


def _flags_of(ref: Ref) -> int:
    """The flags of versions 3 to 7, or 0 if the ref needs none."""
    flags = (ref.tag_filter is not None and _HAS_TAG_FILTER) | (ref.appended_ms is not None and _HAS_APPENDED)
    has_flags = flags or ref.tier.is_item or ref.may_expire
    flags |= _HAS_PRODUCER if has_flags and ref.sequence is not None else 0
    return flags | (_IS_DELAYED if ref.may_expire and ref.is_delayed else 0)


def _size_at(data: bytes, position: int) -> int | None:
    """The size of the ref at `position`, None if it is of no known version or tier, or has unknown flags."""
    version, tier = data[position], data[position + 1 : position + 2]
    if version == _MAY_EXPIRE:
        return _size_of_expiry(data, position, tier)
    if _TIERS_OF_VERSIONS.get(version, b"") != (tier if tier in _ITEM_TIERS else b""):
        return None
    least = _LEAST_FLAGS.get(version)
    if least is None:
        return _BYTES.get(version)
    flags_at = position + REF_BYTES
    size = _BYTES_BY_FLAGS.get(data[flags_at]) if flags_at < len(data) and data[flags_at] >= least else None
    return size + 1 if size is not None and version == _EXPIRING else size


def _size_of_expiry(data: bytes, position: int, tier: bytes) -> int | None:
    """The size of a ref of version 7. A delayed one has its time, and is no item."""
    flags_at = position + REF_BYTES
    flags = data[flags_at] if flags_at < len(data) else -1
    is_delayed = flags >= _IS_DELAYED
    size = _BYTES_BY_FLAGS.get(flags - _IS_DELAYED if is_delayed else flags)
    if size is None or (is_delayed and (not flags & _HAS_APPENDED or tier in _ITEM_TIERS)):
        return None
    return size + (tier == _OF_TTL)


def _decode_at(data: bytes, position: int) -> Ref:
    version, tier, zones, segment_id, at, length, offset_span, record_count, max_timestamp_ms = _LAYOUT.unpack_from(
        data, position
    )
    sequence, tag_filter, appended_ms, kept_days = None, None, None, 0
    position += REF_BYTES
    flags = _HAS_PRODUCER if version == _WITH_PRODUCER else 0
    if version in _LEAST_FLAGS:
        flags = data[position]
        position += 1
    if tier == Tier.EXPIRING:
        kept_days = data[position]
        position += 1
    if flags & _HAS_PRODUCER:
        producer_id, epoch, first_sequence = _PRODUCER.unpack_from(data, position)
        position += _PRODUCER.size
        sequence = ProducerSequence(
            producer_id=producer_id,
            epoch=epoch,
            first_sequence=first_sequence,
            last_sequence=first_sequence + offset_span - 1,
        )
    if flags & _HAS_TAG_FILTER:
        [tag_filter] = _TAG_FILTER.unpack_from(data, position)
        position += _TAG_FILTER.size
    if flags & _HAS_APPENDED:
        [appended_ms] = _APPENDED.unpack_from(data, position)
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
        tag_filter=tag_filter,
        appended_ms=appended_ms,
        is_delayed=bool(flags & _IS_DELAYED) or (version == _WITH_FLAGS and appended_ms is not None),
        kept_days=kept_days,
        may_expire=version == _MAY_EXPIRE,
    )


def _damaged(data: bytes, position: int) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT,
        f"byte {position} of {len(data)} bytes of refs starts {data[position : position + 1].hex()!r} and no ref of a "
        "known version: the index is damaged or was written by a newer Penstock",
    )
