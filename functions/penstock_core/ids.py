"""The identifiers that travel between the layers, and the rules for names.

A topic id is never used twice. So a topic that is deleted and created again never meets its old data. A segment id is
time-ordered: 48 bits of milliseconds, then 80 random bits, 16 bytes in all (the layout of UUIDv7 without its version
bits).
"""

import re
from typing import NamedTuple, NewType

from penstock_core.errors import ErrorCode, PenstockError, shown
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
Nonce = NewType("Nonce", bytes)
ShareGroupId = NewType("ShareGroupId", str)
LockId = NewType("LockId", str)
LockNonce = NewType("LockNonce", str)
SubscriptionId = NewType("SubscriptionId", str)
SubscriptionName = NewType("SubscriptionName", str)
TimerId = NewType("TimerId", bytes)
ScheduleId = NewType("ScheduleId", str)
ScheduleName = NewType("ScheduleName", str)

SEGMENT_ID_BYTES = 16
NONCE_BYTES = 16
TIMER_ID_BYTES = 16
NO_NONCE = Nonce(b"")  # of clients that send none
TOPIC_ID_BYTES = 10
GROUP_CLAIM_ID_BYTES = 8
EPOCH_BYTES = 6  # random bytes of `random_start`; a JSON number holds them
GROUP_EPOCH_BYTES = 4  # the same for a group epoch: keys of targets have ten digits for it

AUDIT_TOPIC = TopicName("_audit")
_RESERVED_PREFIX = "_penstock"

NAME_CHARACTERS = "[A-Za-z0-9._-]+"
_NAME = re.compile(NAME_CHARACTERS, re.ASCII)
_HEX = re.compile(r"[0-9a-f]+")


def parse_topic_name(text: str) -> TopicName:
    """Kafka's rule for topic names: 1 to 249 of `A-Z a-z 0-9 . _ -`, and neither `.` nor `..`.

    Raises INVALID_NAME.
    """
    return TopicName(_checked(text, "topic"))


def parse_own_topic_name(text: str) -> TopicName:
    """As `parse_topic_name`, for topics that callers make, change or write to.

    Reserved topics are the service's: callers only read them. Raises INVALID_NAME.
    """
    name = parse_topic_name(text)
    if is_reserved(name):
        raise PenstockError(
            ErrorCode.INVALID_NAME,
            f"topic name {shown(text)}: {AUDIT_TOPIC} and names that begin with {_RESERVED_PREFIX} are the service's "
            "own, which only it makes, changes and writes to",
        )
    return name


def is_reserved(name: str) -> bool:
    """True for the name of a topic that is the service's own: the audit trail, and all that begin with `_penstock`."""
    return name == AUDIT_TOPIC or name.startswith(_RESERVED_PREFIX)


def parse_group_name(text: str) -> GroupName:
    """The same rule for group names. Raises INVALID_NAME."""
    return GroupName(_checked(text, "group"))


def parse_subscription_name(text: str) -> SubscriptionName:
    """The same rule for names of subscriptions. Raises INVALID_NAME."""
    return SubscriptionName(_checked(text, "subscription"))


def parse_schedule_name(text: str) -> ScheduleName:
    """The same rule for names of schedules. Raises INVALID_NAME."""
    return ScheduleName(_checked(text, "schedule"))


def parse_member_id(text: str) -> str:
    """The same rule for member ids and instance ids, and 100 characters at most. Raises INVALID_NAME."""
    return _checked(text, "member", MEMBER_ID_LENGTH_MAX)


def member_name(member_id: str, instance_id: str | None) -> MemberName:
    """The name of a member in its group: its id, or `=<instance id>`, which stays when the member's process changes.

    Raises INVALID_NAME.
    """
    parse_member_id(member_id)
    return MemberName(member_id if instance_id is None else f"={parse_member_id(instance_id)}")


def parse_transactional_id(text: str) -> TransactionalId:
    """The same rule for transactional ids. Raises INVALID_NAME."""
    return TransactionalId(_checked(text, "transactional id"))


def parse_nonce(text: str) -> Nonce:
    """The nonce that 32 lower-case hexadecimal digits spell. Raises INVALID_REQUEST."""
    if len(text) != 2 * NONCE_BYTES or not _HEX.fullmatch(text):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"nonce={text!r:.100}: must be {2 * NONCE_BYTES} lower-case hexadecimal digits, drawn at random",
        )
    return Nonce(bytes.fromhex(text))


def new_topic_id(entropy: bytes) -> TopicId:
    """20 lower-case hexadecimal digits from `TOPIC_ID_BYTES` random bytes."""
    if len(entropy) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id takes {TOPIC_ID_BYTES} random bytes, got {len(entropy)}")
    return TopicId(entropy.hex())


def new_segment_id(now_ms: int, entropy: bytes) -> SegmentId:
    """A time-ordered id of `SEGMENT_ID_BYTES` from the time and 10 random bytes."""
    if len(entropy) != SEGMENT_ID_BYTES - 6:
        raise ValueError(f"a segment id takes {SEGMENT_ID_BYTES - 6} random bytes, got {len(entropy)}")
    return SegmentId(now_ms.to_bytes(6, "big") + entropy)


def random_start(entropy: bytes) -> int:
    """The first number of a count, from 1 up, drawn from random bytes.

    An earlier count under the same name, such as that of a deleted group, practically never used the numbers that
    follow.
    """
    return int.from_bytes(entropy) + 1


def segment_time_ms(segment_id: SegmentId) -> int:
    """The time in milliseconds since 1970 at which the segment's writer made the id."""
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
            f"{kind} name {shown(text)}: use 1 to {length_max} of A-Z a-z 0-9 . _ - (and not '.' or '..')",
        )
    return text


class PartitionKey(NamedTuple):
    """A partition by the id of its topic: the key of its items in the log table."""

    topic_id: TopicId
    partition: Partition

    def __str__(self) -> str:
        return f"{self.topic_id}#{self.partition}"


def parse_partition_key(text: str) -> PartitionKey:
    """The inverse of `str(key)`. Raises ValueError."""
    topic_id, partition = text.split("#")
    return PartitionKey(TopicId(topic_id), Partition(int(partition)))
