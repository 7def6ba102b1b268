"""Repairs: a segment, the zones that shall hold it, and the refs that shall say so.

As a message:

```
{"segment": "<32 hex>", "zones": ["c"],
 "refs": [{"partition": "<topic id>#<partition>", "base_offset": 0, "ref": "<hex>"}]}
```
A repair may be done twice, late, or in vain: it says where to look, not what is true there.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, PartitionKey, SegmentId, ZoneName, parse_partition_key
from penstock_core.log.ref import LocatedRef, Tier, decode_ref, encode_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRef:
    """A ref and the partition whose index holds it."""

    key: PartitionKey
    located: LocatedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """`zones` shall hold a good copy of the segment, and `refs`, which name it, shall say so.

    There may be no refs: after a confirmed copy went bad, the refs say so already.
    """

    segment_id: SegmentId
    zones: frozenset[ZoneName]
    refs: tuple[NamedRef, ...] = field(default=())


def repairs_due(refs: Iterable[NamedRef], zones: Sequence[ZoneName], wanted: int) -> list[Repair]:
    """The repairs that `refs` need, one per segment: for each bit of `wanted` that a ref lacks.

    `zones` are all zones, in configured order. Archived segments lie in no zone and need no repair.
    """
    owing: dict[SegmentId, tuple[int, list[NamedRef]]] = {}
    for named in refs:
        ref = named.located.ref
        missing = wanted & ~ref.zones
        if missing and ref.tier is Tier.ZONAL:
            before, others = owing.get(ref.segment_id, (0, []))
            owing[ref.segment_id] = (before | missing, [*others, named])
    return [
        Repair(
            segment_id=segment_id,
            zones=frozenset(zone for index, zone in enumerate(zones) if missing >> index & 1),
            refs=tuple(named),
        )
        for segment_id, (missing, named) in owing.items()
    ]


def encode_repair(repair: Repair) -> str:
    """The message above."""
    return json.dumps(
        {
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
    )


def decode_repair(message: str) -> Repair:
    """The inverse of `encode_repair`. Raises INVALID_REQUEST for any other text."""
    try:
        fields = json.loads(message)
        segment_id = SegmentId(bytes.fromhex(fields["segment"]))
        zones = frozenset(ZoneName(str(zone)) for zone in fields["zones"])
        refs = tuple(map(_decode_named, fields["refs"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_repair(message) from error
    if len(segment_id) != SEGMENT_ID_BYTES:
        raise _no_repair(message)
    return Repair(segment_id=segment_id, zones=zones, refs=refs)


def _decode_named(fields: dict[str, Any]) -> NamedRef:
    located = LocatedRef(base_offset=Offset(int(fields["base_offset"])), ref=decode_ref(bytes.fromhex(fields["ref"])))
    return NamedRef(key=parse_partition_key(fields["partition"]), located=located)


def _no_repair(message: str) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_REQUEST, f"{message!r:.200} is no repair message: see penstock_core/log/repair.py"
    )
