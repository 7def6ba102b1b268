"""The offsets that groups of the source have committed in a mirrored topic, as the source tells them to the mirror.

Of a share group it tells the first offset of each partition that is not finished. The mirror keeps the last telling
whole, apart from its own groups. A promotion gives them to groups there. Pure.

A telling names the number of the one that it replaces, as the mirror has answered it. So of tellings that are late,
doubled, or of two pushers, the mirror takes one, and the others learn its number. Clocks decide nothing.

Their text is JSON, in the request and in the mirror's item: `[[group, [[partition, offset], …]], …]`. A commit with
metadata has them as third value, and a share group has "share" as third.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import GroupName, Offset, Partition, parse_group_name
from penstock_core.limits import (
    COMMIT_METADATA_BYTES_MAX,
    COMMIT_OFFSET_MAX,
    MIRROR_OFFSETS_BYTES,
    TOPIC_PARTITIONS_MAX,
)
from penstock_core.text import parse_json

_DIGEST_BYTES = 8
_SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredOffset:
    """The commit of a group for one partition, or the first offset that a share group has not finished."""

    offset: Offset
    metadata: str = ""


OffsetsOfGroups = Mapping[GroupName, Mapping[Partition, MirroredOffset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredOffsets:
    """The offsets by group and partition, read at `read_ms`. `left_out` groups had no room, or were not read."""

    read_ms: int
    left_out: int = 0
    groups: OffsetsOfGroups = field(default_factory=dict)
    share_groups: OffsetsOfGroups = field(default_factory=dict)

    def below(self, ends: Mapping[Partition, Offset]) -> "MirroredOffsets":
        """The offsets of partitions that have an end, none beyond it: the mirror lacks what groups have read there."""
        return replace(self, groups=_below(self.groups, ends), share_groups=_below(self.share_groups, ends))


def _below(groups: OffsetsOfGroups, ends: Mapping[Partition, Offset]) -> OffsetsOfGroups:
    return {
        group: {
            partition: replace(each, offset=min(each.offset, ends[partition]))
            for partition, each in sorted(offsets.items())
            if partition in ends
        }
        for group, offsets in groups.items()
    }


NO_OFFSETS = MirroredOffsets(read_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsTelling:
    """A telling in place of the one with the number `replaces`, 0 for none. The body of its request is the text."""

    replaces: int
    read_ms: int
    left_out: int


def fitted(
    committed: Mapping[GroupName, Sequence[CommittedOffset]],
    read_ms: int,
    unread: int,
    share_groups: OffsetsOfGroups | None = None,
) -> MirroredOffsets:
    """The offsets of as many groups as there is room for. Those whose last commit is oldest have none.

    Share groups come first, by their names, and have half the room: each has a few bytes for a partition.
    """
    newest = {name: max(each.committed_at_ms for each in offsets) for name, offsets in committed.items() if offsets}
    places, found = share_groups or {}, MirroredOffsets(read_ms=read_ms)
    share, groups = dict(found.share_groups), dict(found.groups)
    room, wanted = MIRROR_OFFSETS_BYTES, len(newest) + len(places)
    for name in sorted(places):
        size = len(encode_offsets(replace(found, share_groups={name: places[name]})))
        if size <= room - MIRROR_OFFSETS_BYTES // 2:
            room -= size
            share[name] = places[name]
    for name in sorted(newest, key=lambda each: (-newest[each], each)):
        offsets = {
            each.partition.partition: MirroredOffset(offset=each.offset, metadata=each.metadata)
            for each in committed[name]
        }
        size = len(encode_offsets(replace(found, groups={name: offsets})))
        if size <= room:
            room -= size
            groups[name] = offsets
    left_out = wanted - len(groups) - len(share) + unread
    return replace(found, left_out=left_out, groups=groups, share_groups=share)


def digest_of(offsets: MirroredOffsets) -> str:
    """A digest of what a telling has."""
    return sha256(b"%d " % offsets.left_out + encode_offsets(offsets)).digest()[:_DIGEST_BYTES].hex()


def encode_offsets(offsets: MirroredOffsets) -> bytes:
    """The text, sorted by group and partition."""
    rows: list[tuple[object, ...]] = [(name, _rows(of)) for name, of in sorted(offsets.groups.items())]
    rows += [(name, _rows(of), _SHARE) for name, of in sorted(offsets.share_groups.items())]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()


def _rows(offsets: Mapping[Partition, MirroredOffset]) -> list[tuple[int | str, ...]]:
    return [_row(*each) for each in sorted(offsets.items())]


def _row(partition: Partition, committed: MirroredOffset) -> tuple[int | str, ...]:
    row = (partition, committed.offset)
    return (*row, committed.metadata) if committed.metadata else row


def decode_offsets(text: bytes, read_ms: int, left_out: int) -> MirroredOffsets:
    """The inverse of `encode_offsets`. Raises INVALID_REQUEST for another text, or one too long, and INVALID_NAME."""
    if len(text) > MIRROR_OFFSETS_BYTES:
        raise _invalid(f"{len(text)} bytes: {MIRROR_OFFSETS_BYTES} at most")
    groups: dict[GroupName, Mapping[Partition, MirroredOffset]] = {}
    share_groups: dict[GroupName, Mapping[Partition, MirroredOffset]] = {}
    try:
        for name, offsets, *kind in parse_json(text.decode()):
            if kind not in ([], [_SHARE]):
                raise _invalid(f"{kind!r:.100} is no kind of group")
            (share_groups if kind else groups)[parse_group_name(name)] = dict(map(_parse_offset, offsets))
    except (ValueError, TypeError) as error:
        raise _invalid(f"no offsets of groups ({error})") from error
    return MirroredOffsets(read_ms=read_ms, left_out=left_out, groups=groups, share_groups=share_groups)


def _parse_offset(row: Sequence[Any]) -> tuple[Partition, MirroredOffset]:
    partition, offset, *rest = row
    metadata = rest[0] if rest else ""
    is_right = (
        _is_within(partition, TOPIC_PARTITIONS_MAX - 1)
        and _is_within(offset, COMMIT_OFFSET_MAX)
        and len(rest) <= 1
        and isinstance(metadata, str)
        and len(metadata.encode()) <= COMMIT_METADATA_BYTES_MAX
    )
    if not is_right:
        raise _invalid(f"{row!r:.100} is no partition, offset and metadata")
    return Partition(partition), MirroredOffset(offset=Offset(offset), metadata=metadata)


def _is_within(value: object, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high


def _invalid(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"the offsets of groups in a push: {why}")
