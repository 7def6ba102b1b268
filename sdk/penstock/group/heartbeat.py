"""The values of the group protocol: the member, its heartbeats, and the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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


class Look(NamedTuple):
    """A partition where the member sleeps, for a heartbeat to look at. `coverage` names the subscription over it."""

    topic_id: str
    partition: int
    offset: int
    coverage: int


class Sleepers(Protocol):
    """The sleeping partitions of a member, at which a heartbeat looks for a fetch (docs/protocol/wake-ups)."""

    def to_look_at(self, until_ms: int) -> Sequence[Look]:
        """The partitions whose safety net ends by then: a heartbeat that is sent now may prolong it."""
        ...

    def looked(self, looks: Sequence[Look], armed: frozenset[tuple[str, int]], now_ms: int, chance: float) -> None:
        """Take an answer: the topic ids and partitions that may sleep on. The others are fetched."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A heartbeat to send. By `session` and `claims` the member tells whether it still holds when the answer comes."""

    body: Mapping[str, Any]
    sent_at_ms: int
    session: int
    claims: int
    looks: Sequence[Look] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """The service's answer. The next heartbeats name `service_session`.

    `revoked` and `armed` hold topic ids and partitions. `armed` is None if the service has looked at no partition.
    """

    epoch: int
    service_session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Mapping[TopicPartition, HeldLease]
    revoked: frozenset[tuple[str, int]]
    armed: frozenset[tuple[str, int]] | None = None
