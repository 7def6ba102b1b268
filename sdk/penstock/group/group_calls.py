"""The calls of a group's members: heartbeats, and commits under leases. Requests out, answers in.

The values of the group protocol: the member, its heartbeats, and the answers.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.api.calls import commit_offsets, group_path, offset_item, seen_commit
from penstock.errors import UnavailableError
from penstock.http.http_message import HttpRequest, Response, json_document, json_request
from penstock.http.steps import Calls
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError


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
    """The service's answer. The next heartbeats name `service_session`. An earlier service has no young group.

    `revoked` and `armed` hold topic ids and partitions. `armed` is None if the service has looked at no partition.
    """

    epoch: int
    service_session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Mapping[TopicPartition, HeldLease]
    revoked: frozenset[tuple[str, int]]
    is_young: bool = False
    armed: frozenset[tuple[str, int]] | None = None


def beat(
    group: str, heartbeat: HeartbeatRequest
) -> Generator[HttpRequest, Response, HeartbeatResponse | PenstockError]:
    """One try of a heartbeat, which never raises an error: membership.py takes the outcome."""
    log = logging.getLogger("penstock.consumer")
    try:
        request = json_request("POST", f"{group_path(group)}/heartbeat", body=heartbeat.body)
        return _heartbeat_answer(json_document(request, (yield request)))
    except PenstockError as error:
        log.warning("heartbeat in group %s: %s", group, error)
        return error
    except Exception as error:  # the driver's edge: a defect must not end the heartbeats
        log.exception("heartbeat failed in an unexpected way")
        return UnavailableError(ErrorCode.INTERNAL, f"heartbeat failed: {error!r}", maybe_applied=True)


def commit_leased(
    group: str,
    member: MemberSettings,
    offsets: Mapping[TopicPartition, tuple[int, HeldLease]],
    behind: Mapping[TopicPartition, PenstockError] | None = None,
) -> Calls[dict[TopicPartition, PenstockError]]:
    """Commit offsets, each under its lease; returns the refused ones by partition. One request per 1,000.

    `behind` has the refusals of offsets that go back on purpose.
    """
    behind = behind or {}
    items = [
        offset_item(
            each,
            offset,
            topic_id=lease.topic_id,
            lease_epoch=lease.lease_epoch,
            back_from=seen_commit(behind[each]) if each in behind else None,
        )
        for each, (offset, lease) in offsets.items()
    ]
    names = {"member_id": member.member_id}
    if member.instance_id is not None:
        names["instance_id"] = member.instance_id
    return (yield from commit_offsets(group, items, **names))


def _heartbeat_answer(answer: Mapping[str, Any]) -> HeartbeatResponse:
    granted = {
        TopicPartition(each["topic"], each["partition"]): HeldLease(
            topic_id=each["topic_id"],
            lease_epoch=each["lease_epoch"],
            offset=each["offset"],
            is_late=each.get("is_late", False),
        )
        for each in answer["granted"]
    }
    return HeartbeatResponse(
        epoch=answer["epoch"],
        service_session=answer["session"],
        heartbeat_after_ms=answer["heartbeat_after_ms"],
        session_timeout_ms=answer["session_timeout_ms"],
        is_complete=answer["is_complete"],
        granted=granted,
        revoked=_partitions(answer["revoked"]),
        is_young=answer.get("is_young", False),
        armed=_partitions(answer["armed"]) if "armed" in answer else None,
    )


def _partitions(by_topic_id: Mapping[str, Sequence[int]]) -> frozenset[tuple[str, int]]:
    return frozenset((topic_id, number) for topic_id, numbers in by_topic_id.items() for number in numbers)
