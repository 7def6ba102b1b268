"""The two messages of the repair queue.

A repair names a segment, the zones that are to hold it, and the refs that are to say so:

```
{"segment": "<32 hex>", "zones": ["c"],
 "refs": [{"partition": "<topic id>#<partition>", "base_offset": 0, "ref": "<hex>"}]}
```
A look names ranges of partitions, some of whose refs lacked a zone's bit when it was sent (docs/protocol/zones):

```
{"look": [{"partition": "<topic id>#<partition>", "start_offset": 0, "end_offset": 17}]}
```
Both may be done twice, late, or in vain: they say where to look, not what is true there.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, PartitionKey, SegmentId, ZoneName, parse_partition_key
from penstock_core.limits import LOOK_RANGES_MAX
from penstock_core.log.ref import LocatedRef, Tier, decode_ref, encode_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRef:
    """A ref and the partition whose index holds it."""

    key: PartitionKey
    located: LocatedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """`zones` are to hold a good copy of the segment, and `refs`, which name it, are to say so.

    There may be no refs: after a confirmed copy went bad, the refs say so already.
    """

    segment_id: SegmentId
    zones: frozenset[ZoneName]
    refs: tuple[NamedRef, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedRange:
    """The offsets `[start_offset, end_offset)` of a partition. Some of the refs there lacked a zone's bit."""

    key: PartitionKey
    start_offset: Offset
    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A later look at `ranges`, at least one and at most `LOOK_RANGES_MAX`: what is still missing then is repaired."""

    ranges: tuple[OwedRange, ...]


def owed_refs(refs: Iterable[NamedRef], wanted: int) -> list[NamedRef]:
    """The refs that lack a bit of `wanted`. Archived and inline segments lie in no zone and need no repair."""
    return [each for each in refs if wanted & ~each.located.ref.zones and each.located.ref.tier is Tier.ZONAL]


def looks_due(refs: Iterable[NamedRef]) -> list[Look]:
    """The looks at `refs`: one range for each partition, from its first ref to its last one."""
    ranges: dict[PartitionKey, OwedRange] = {}
    for named in refs:
        start_offset, end_offset = named.located.base_offset, named.located.end_offset
        if (before := ranges.get(named.key)) is not None:
            start_offset = min(before.start_offset, start_offset)
            end_offset = max(before.end_offset, end_offset)
        ranges[named.key] = OwedRange(key=named.key, start_offset=start_offset, end_offset=end_offset)
    found = tuple(ranges.values())
    return [Look(ranges=found[start : start + LOOK_RANGES_MAX]) for start in range(0, len(found), LOOK_RANGES_MAX)]


def repairs_due(refs: Iterable[NamedRef], zones: Sequence[ZoneName], wanted: int) -> list[Repair]:
    """The repairs that `refs` need, one per segment: for each bit of `wanted` that a ref lacks.

    `zones` are all zones, in configured order.
    """
    owing: dict[SegmentId, tuple[int, list[NamedRef]]] = {}
    for named in owed_refs(refs, wanted):
        ref = named.located.ref
        before, others = owing.get(ref.segment_id, (0, []))
        owing[ref.segment_id] = (before | wanted & ~ref.zones, [*others, named])
    return [
        Repair(
            segment_id=segment_id,
            zones=frozenset(zone for index, zone in enumerate(zones) if missing >> index & 1),
            refs=tuple(named),
        )
        for segment_id, (missing, named) in owing.items()
    ]


def encode_message(message: Repair | Look) -> str:
    """The message above."""
    return json.dumps(_look_fields(message) if isinstance(message, Look) else _repair_fields(message))


def decode_message(text: str) -> Repair | Look:
    """The inverse of `encode_message`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(text)
        if "look" in fields:
            return Look(ranges=tuple(map(_decode_range, fields["look"])))
        segment_id = SegmentId(bytes.fromhex(fields["segment"]))
        zones = frozenset(ZoneName(str(zone)) for zone in fields["zones"])
        refs = tuple(map(_decode_named, fields["refs"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_repair(text) from error
    if len(segment_id) != SEGMENT_ID_BYTES:
        raise _no_repair(text)
    return Repair(segment_id=segment_id, zones=zones, refs=refs)


def _look_fields(look: Look) -> dict[str, Any]:
    return {
        "look": [
            {"partition": str(each.key), "start_offset": each.start_offset, "end_offset": each.end_offset}
            for each in look.ranges
        ]
    }


def _repair_fields(repair: Repair) -> dict[str, Any]:
    return {
        "segment": repair.segment_id.hex(),
        "zones": sorted(repair.zones),
        "refs": [
            {
                "partition": str(named.key),
                "base_offset": named.located.base_offset,
                "ref": encode_ref(named.located.ref).hex(),
            }
            for named in repair.refs
        ],
    }


def _decode_range(fields: dict[str, Any]) -> OwedRange:
    return OwedRange(
        key=parse_partition_key(fields["partition"]),
        start_offset=Offset(int(fields["start_offset"])),
        end_offset=Offset(int(fields["end_offset"])),
    )


def _decode_named(fields: dict[str, Any]) -> NamedRef:
    located = LocatedRef(base_offset=Offset(int(fields["base_offset"])), ref=decode_ref(bytes.fromhex(fields["ref"])))
    return NamedRef(key=parse_partition_key(fields["partition"]), located=located)


def _no_repair(message: str) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_REQUEST, f"{message!r:.200} is no repair message: see penstock_core/log/repair.py"
    )
