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
Version 8 is the short form of all of these. Whoever makes a ref writes it so:

```
 0  version u8
 1  shape   u8      bits 0 and 1 tier; bit 2 producer; 3 tag filter; 4 appended_ms; 5 some records were delayed;
                   6 records may expire; 7 record_count differs from offset_span
 2  zones   u8
 3  segment id      16 bytes
19  varints         position, length, offset_span, record_count if bit 7 is set, and max_timestamp_ms less the time of
                   the segment id, in zigzag
    kept_days u8 in tier 3, then as the bits tell: producer (id i64, varints of epoch and first sequence), tag filter
    u64, appended_ms i64
```
A varint has 7 bits in each byte, the lowest ones first. It has no byte more than it needs, so each ref has one short
form, and one long form. A ref keeps the form in which it was read (`is_short`): conditions compare bytes.

Big-endian throughout. Each ref has one encoding in a form. Version 3 is written only where bit 1 is set, or bit 2 for
delayed records. Version 5 is written where bit 2 is set and no record was delayed. A reader refuses both otherwise. All
long refs of tier 2 have version 4, those of tier 3 version 6, and no other ref has these: a release that does not know
the tier refuses them as a whole (docs/adr/0064). Delayed records are never of these tiers. A long ref whose records may
expire has version 7 in each tier, and no other ref has it (docs/adr/0084).
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
_PLAIN, _WITH_PRODUCER, _WITH_FLAGS, _INLINE, _DATED, _EXPIRING, _MAY_EXPIRE, _SHORT = 1, 2, 3, 4, 5, 6, 7, 8
_HAS_PRODUCER, _HAS_TAG_FILTER, _HAS_APPENDED, _IS_DELAYED = 1, 2, 4, 8
assert {
    _PLAIN,
    _WITH_PRODUCER,
    _WITH_FLAGS,
    _INLINE,
    _DATED,
    _EXPIRING,
    _MAY_EXPIRE,
    _SHORT,
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
_SHORT_LAYOUT = struct.Struct(">BBB16s")
_U32, _U64 = 2**32, 2**64
_SHORT_PRODUCER, _SHORT_TAG_FILTER, _SHORT_APPENDED = 4, 8, 16  # of a short ref's shape
_SHORT_DELAYED, _SHORT_MAY_EXPIRE, _SHORT_COUNT = 32, 64, 128
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

    `is_short`: it is stored in the short form, as all new refs are.
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
    is_short: bool = True

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
    """The bytes in the layout above: in the long form `REF_BYTES` to `REF_BYTES_MAX`, in the short one 24 to 82."""
    if ref.is_short:
        return _encode_short(ref)
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
        if data[position] == _SHORT:
            ref, position = _decode_short(data, position)
            refs.append(ref)
            continue
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
        is_short=False,
    )


def _encode_short(ref: Ref) -> bytes:
    sequence, shape = ref.sequence, int(ref.tier)
    shape |= _SHORT_MAY_EXPIRE if ref.may_expire else 0
    shape |= _SHORT_DELAYED if ref.is_delayed else 0
    delta = ref.max_timestamp_ms - segment_time_ms(ref.segment_id)
    numbers = [ref.position, ref.length, ref.offset_span]
    if ref.record_count != ref.offset_span:
        shape |= _SHORT_COUNT
        numbers.append(ref.record_count)
    numbers.append(delta << 1 if delta >= 0 else ~(delta << 1))
    fields = b"".join(map(varint, numbers))
    if ref.tier is Tier.EXPIRING:
        fields += bytes((ref.kept_days,))
    if sequence is not None:
        shape |= _SHORT_PRODUCER
        fields += sequence.producer_id.to_bytes(8) + varint(sequence.epoch) + varint(sequence.first_sequence)
    if ref.tag_filter is not None:
        shape |= _SHORT_TAG_FILTER
        fields += _TAG_FILTER.pack(ref.tag_filter)
    if ref.appended_ms is not None:
        shape |= _SHORT_APPENDED
        fields += _APPENDED.pack(ref.appended_ms)
    return _SHORT_LAYOUT.pack(_SHORT, shape, ref.zones, ref.segment_id) + fields


def _decode_short(data: bytes, position: int) -> tuple[Ref, int]:
    """The ref, and the position behind it."""
    try:
        _, shape, zones, segment_id = _SHORT_LAYOUT.unpack_from(data, position)
        at, behind = _read_varint(data, position + _SHORT_LAYOUT.size, _U32)
        length, behind = _read_varint(data, behind, _U32)
        offset_span, behind = _read_varint(data, behind, _U32)
        record_count = offset_span
        if shape & _SHORT_COUNT:
            record_count, behind = _read_varint(data, behind, _U32)
        delta, behind = _read_varint(data, behind, _U64)
        tier, sequence, tag_filter, appended_ms, kept_days = Tier(shape & 3), None, None, None, 0
        if tier is Tier.EXPIRING:
            kept_days, behind = data[behind], behind + 1
        if shape & _SHORT_PRODUCER:
            producer_id, behind = int.from_bytes(data[behind : behind + 8]), behind + 8
            epoch, behind = _read_varint(data, behind, 2**16)
            first, behind = _read_varint(data, behind, _U32)
            sequence = ProducerSequence(
                producer_id=producer_id, epoch=epoch, first_sequence=first, last_sequence=first + offset_span - 1
            )
        if shape & _SHORT_TAG_FILTER:
            [tag_filter] = _TAG_FILTER.unpack_from(data, behind)
            behind += _TAG_FILTER.size
        if shape & _SHORT_APPENDED:
            [appended_ms] = _APPENDED.unpack_from(data, behind)
            behind += _APPENDED.size
    except (IndexError, ValueError, struct.error):
        raise _damaged(data, position) from None
    is_delayed = bool(shape & _SHORT_DELAYED)
    is_shorter = bool(shape & _SHORT_COUNT) and record_count == offset_span
    if is_shorter or (is_delayed and (appended_ms is None or tier.is_item)):
        raise _damaged(data, position)
    ref = Ref(
        segment_id=SegmentId(segment_id),
        position=at,
        length=length,
        offset_span=offset_span,
        record_count=record_count,
        max_timestamp_ms=segment_time_ms(segment_id) + (~(delta >> 1) if delta & 1 else delta >> 1),
        zones=zones,
        tier=tier,
        sequence=sequence,
        tag_filter=tag_filter,
        appended_ms=appended_ms,
        is_delayed=is_delayed,
        kept_days=kept_days,
        may_expire=bool(shape & _SHORT_MAY_EXPIRE),
        is_short=True,
    )
    return ref, behind


def varint(value: int) -> bytes:
    """The number in groups of seven bits, the lowest first: all but the last have their high bit set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, position: int, limit: int) -> tuple[int, int]:
    """The number, and the position behind it. Raises ValueError for `limit` and above, and for a longer form."""
    value, shift = data[position] & 0x7F, 7
    while data[position] > 0x7F:
        position += 1
        value |= (data[position] & 0x7F) << shift
        shift += 7
        if value >= limit or not data[position]:
            raise ValueError
    return value, position + 1


def _damaged(data: bytes, position: int) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT,
        f"byte {position} of {len(data)} bytes of refs starts {data[position : position + 1].hex()!r} and no ref of a "
        "known version: the index is damaged or was written by a newer Penstock",
    )
