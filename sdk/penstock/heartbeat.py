"""The values of the group protocol: who a member is, what it sends, and what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model import TopicPartition
from penstock.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A partition that is the member's. `offset` is the committed one, None if there is none."""

    topic_id: str
    lease_epoch: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Who the member is. `config` is for the group, if this member makes it."""

    member_id: str  # new for each process
    instance_id: str | None
    client_id: str
    config: Mapping[str, Any]
    max_poll_interval_ms: int
    retry: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One to be sent. `session` and `claims` tell whether what it says still holds when it is answered."""

    body: Mapping[str, Any]
    sent_at_ms: int
    session: int
    claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """What the service says. `service_session` is to be named from then on; `revoked`: topic ids and partitions."""

    epoch: int
    service_session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Mapping[TopicPartition, Lease]
    revoked: frozenset[tuple[str, int]]
