"""The values of the group protocol: the member, its heartbeats, and the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model import TopicPartition
from penstock.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """The lease of a partition that the member owns. `offset` is the committed one, None if there is none.

    `is_late`: the partition came after the group had begun to read.
    """

    topic_id: str
    lease_epoch: int
    offset: int | None
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The member's names and times. `config` is for the group, if this member makes it."""

    member_id: str  # new for each process
    instance_id: str | None
    client_id: str
    config: Mapping[str, Any]
    max_poll_interval_ms: int
    retry: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A heartbeat to send. By `session` and `claims` the member tells whether it still holds when the answer comes."""

    body: Mapping[str, Any]
    sent_at_ms: int
    session: int
    claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """The service's answer. The next heartbeats name `service_session`. `revoked` holds topic ids and partitions."""

    epoch: int
    service_session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Mapping[TopicPartition, HeldLease]
    revoked: frozenset[tuple[str, int]]
