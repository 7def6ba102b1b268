"""The identifiers that travel between the layers, and the rules for names.

A topic id is never used twice, so a topic deleted and created again never meets its old data. A segment id is
time-ordered: 48 bits of milliseconds, then 80 random bits, 16 bytes in all (the layout of UUIDv7 without its
version bits).
"""

import re
from typing import NewType

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MEMBER_ID_LENGTH_MAX, NAME_LENGTH_MAX

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", str)
Partition = NewType("Partition", int)
Offset = NewType("Offset", int)
GroupName = NewType("GroupName", str)
MemberName = NewType("MemberName", str)
ZoneName = NewType("ZoneName", str)
SegmentId = NewType("SegmentId", bytes)
TransactionalId = NewType("TransactionalId", str)

SEGMENT_ID_BYTES = 16
TOPIC_ID_BYTES = 10
EPOCH_BYTES = 6  # drawn for what is counted anew when a name is used again; a JSON number holds it
GROUP_EPOCH_BYTES = 4  # keys of targets have ten digits for it

_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def parse_topic_name(text: str) -> TopicName:
    """Kafka's rule for topic names: 1 to 249 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`.

    Raises INVALID_NAME.
    """
    return TopicName(_checked(text, "topic"))


def parse_group_name(text: str) -> GroupName:
    """The same rule for group names. Raises INVALID_NAME."""
    return GroupName(_checked(text, "group"))


def parse_member_id(text: str) -> str:
    """The same rule for member ids and instance ids, and 100 characters at most. Raises INVALID_NAME."""
    return _checked(text, "member", MEMBER_ID_LENGTH_MAX)


def member_name(member_id: str, instance_id: str | None) -> MemberName:
    """What a group knows a member by: its id, or `=<instance id>`, which stays when the member's process changes.

    Raises INVALID_NAME.
    """
    parse_member_id(member_id)
    return MemberName(member_id if instance_id is None else f"={parse_member_id(instance_id)}")


def parse_transactional_id(text: str) -> TransactionalId:
    """The same rule for transactional ids. Raises INVALID_NAME."""
    return TransactionalId(_checked(text, "transactional id"))


def new_topic_id(chance: bytes) -> TopicId:
    """20 lower-case hexadecimal digits from `TOPIC_ID_BYTES` random bytes."""
    if len(chance) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id takes {TOPIC_ID_BYTES} random bytes, got {len(chance)}")
    return TopicId(chance.hex())


def new_segment_id(now_ms: int, chance: bytes) -> SegmentId:
    """A time-ordered id of `SEGMENT_ID_BYTES` from the time and 10 random bytes."""
    if len(chance) != SEGMENT_ID_BYTES - 6:
        raise ValueError(f"a segment id takes {SEGMENT_ID_BYTES - 6} random bytes, got {len(chance)}")
    return SegmentId(now_ms.to_bytes(6, "big") + chance)


def drawn_number(chance: bytes) -> int:
    """Where counting begins, from 1 on, so that what was counted before under the same name is not met again."""
    return int.from_bytes(chance) + 1


def segment_time_ms(segment_id: SegmentId) -> int:
    """When the segment's writer made the id, in milliseconds since 1970."""
    return int.from_bytes(segment_id[:6], "big")


def _checked(text: str, kind: str, length_max: int = NAME_LENGTH_MAX) -> str:
    if len(text) > length_max:
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"{kind} name of {len(text)} characters: at most {length_max} are allowed",
        )
    if text in (".", "..") or not _NAME.fullmatch(text):
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"{kind} name {text!r}: use 1 to {length_max} of A-Z a-z 0-9 . _ - (and not '.' or '..')",
        )
    return text
