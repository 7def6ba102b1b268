"""Groups as operators see them. All values are immutable; times are milliseconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group and its settings. `epoch` is 0 if no member ever joined: simple consumers commit for such a group.

    `protocol_type` is another one than "consumer" in a group whose leader assigns, such as Kafka Connect's workers.
    """

    group: str
    epoch: int
    member_count: int
    config: Mapping[str, Any]
    changed_at_ms: int
    protocol_type: str = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member with a live session. If its `epoch` is older than the group's, it has a rebalance to hear of.

    A process that goes on for the member names `session`, and a higher `sequence` with each heartbeat. The member asked
    for `session_timeout_ms`; None if the group's setting counts.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...]
    epoch: int
    joined_at_ms: int
    session_ends_at_ms: int
    session: int = 0
    sequence: int = 0
    session_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition of a group. `assigned_to` and `owner` are member ids, and differ while the partition moves.

    `offset` and `lag` are None if the group never committed an offset there. `oldest_age_ms` is the time since the
    append of the first record behind `offset`, None if there is none. `waits_for` is the partition that the group must
    read to its end before it reads this one, None if it need not wait.
    """

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
    oldest_age_ms: int | None
    waits_for: int | None = None
    topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, its members, and its partitions by topic and number."""

    group: Group
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """The old offset of a partition (None if there was none), and the new one. In a dry run nothing has changed."""

    old_offset: int | None
    new_offset: int
