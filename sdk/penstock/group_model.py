"""Groups as operators see them. All are immutable; times are milliseconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group and its settings. `epoch` is 0 for one that nobody has joined: simple consumers commit for it."""

    group: str
    epoch: int
    member_count: int
    config: Mapping[str, Any]
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member whose session goes on. One that knows an older `epoch` than the group's has still to hear of it."""

    member_id: str
    instance_id: str | None
    client_id: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...]
    epoch: int
    joined_at_ms: int
    session_ends_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """`assigned_to` and `owner` are member ids, and differ while the partition moves. `offset` and `lag` are None if
    nothing was ever committed."""

    topic: str
    partition: int
    assigned_to: str | None
    owner: str | None
    lease_epoch: int
    offset: int | None
    metadata: str
    committed_at_ms: int
    log_start_offset: int
    high_watermark: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, its members, and its partitions by topic and number."""

    group: Group
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """What a partition's offset was (None: nothing was committed), and what it is now, or would be."""

    old_offset: int | None
    new_offset: int
