"""The format of everything that Penstock stores: the versions that this release writes, and those that it reads.

Rules (docs/adr/0036):

1. A release reads the versions that the next release writes. So two releases may serve one stage, and an upgrade can be
   taken back.
2. An item has version 1 unless its attribute `format_version` says otherwise. A new attribute that an old release may
   ignore keeps the version. An old release leaves such an attribute as it is when it changes the item.
3. A reader refuses a version that is not in `reads`. It never guesses.
4. Some writers update an item before they read it, as an append does. So a new version of such an item renames the
   attribute that their conditions ask for (`next_offset` in a head), and DynamoDB refuses the old release's writes.

Refs, segments, targets and frames have their version in their bytes, or in their media type.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError

FORMAT_ATTRIBUTE = "format_version"
_UNNAMED_VERSION = 1


@dataclass(frozen=True, slots=True)
class Format:
    """The versions of one kind that this release writes, and all that it reads. It reads what it writes."""

    writes: frozenset[int]
    reads: frozenset[int]


def _only(*versions: int) -> Format:
    return Format(frozenset(versions), frozenset(versions))


ITEM_FORMATS: Mapping[str, Format] = {
    "topic": _only(1, 2, 3),  # 2 was moved to its mirror, as in heads; 3 has retention=acknowledged. In `ON_DEMAND`
    "deleted_topic": _only(1),
    "zone_states": _only(1),
    "acls": _only(1),
    "acls_mark": _only(1),
    "acls_owners": _only(1),
    "catch_up": _only(1),
    "cursor": _only(1),
    "audit_entry": _only(1),
    "quota": _only(1),
    "bucket": _only(1),
    "claim": _only(1),
    "head": _only(1, 2),
    "page": _only(1),
    "merge_mark": _only(1),
    "producer": _only(1),
    "mirrored_offsets": _only(1),
    "compaction": _only(1),
    "retired": _only(1),
    "merged_sequences": _only(1),
    "inline": _only(1),
    "expiring": _only(1),
    "timer": _only(1, 2),  # 2 is the copy of one that waits at the source of a mirror, and is in `ON_DEMAND`
    "told_timer": _only(1),
    "due_minute": _only(1),
    "timers_switch": _only(1),
    "transactional_producer": _only(1),
    "transaction_stage": _only(1),
    "group": _only(1),
    "registered_group": _only(1),
    "member": _only(1),
    "target": _only(1),
    "lease": _only(1),
    "share_group": _only(1, 2),  # 2 has `sharing` or `topic_order`, and is in `ON_DEMAND`
    "share_state": _only(1),
    "subscription": _only(1),
    "subscription_note": _only(1),
    "orphaned_states": _only(1),
    "schedule": _only(1),
    "push_lane": _only(1),
    "push_delivery": _only(1),
}
BYTE_FORMATS: Mapping[str, Format] = {
    # 8 is the short form of all others, and of all new refs. 4 and 6 stand for refs of items too, which are written
    # where the stage's `inline_bytes_max` lets them be: `own_facts` adds them (docs/adr/0064).
    "ref": Format(frozenset((8,)), frozenset((1, 2, 3, 4, 5, 6, 7, 8))),
    "segment": _only(1),
    "target": Format(frozenset((2,)), frozenset((1, 2))),
    "share_lock": _only(1),
    "share_wait": _only(1),
    "share_reason": _only(1),
    "frame": _only(1),  # by its media type alone
}

ON_DEMAND: Mapping[str, frozenset[int]] = {
    "topic": frozenset((2, 3)),
    "head": frozenset((2,)),
    "share_group": frozenset((2,)),
    "timer": frozenset((2,)),
}
"""The versions that are written only for users who ask for what is new in them: moved topics, topics that keep what
readers have not passed, share groups with priorities or fair sharing, delayed records of mirrors.

So a release may be deployed over one that does not read them. Its users ask once no function of the old one is left.
"""


def check_item(kind: str, item: Mapping[str, Any]) -> None:
    """Raises UNSUPPORTED_FORMAT if the item says that it has a version which this release does not read."""
    version = _version_of(item)
    if version not in ITEM_FORMATS[kind].reads:
        raise unsupported(kind, version)


def unsupported(kind: str, version: int) -> PenstockError:
    """The error of a reader that meets a version of `kind` which it does not read."""
    formats = ITEM_FORMATS if kind in ITEM_FORMATS else BYTE_FORMATS
    known = ", ".join(map(str, sorted(formats[kind].reads)))
    return PenstockError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"{kind} of format {version}, this release reads {known}: use the release that wrote it, or a later one",
    )


def _version_of(item: Mapping[str, Any]) -> int:
    stored = item.get(FORMAT_ATTRIBUTE)
    return _UNNAMED_VERSION if stored is None else int(stored["N"])
