"""The calls of a group's members: heartbeats, and commits under leases. Requests out, answers in."""

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from penstock.api.calls import commit_offsets, group_path, offset_item, seen_commit
from penstock.errors import UnavailableError
from penstock.group.heartbeat import HeartbeatRequest, HeartbeatResponse, HeldLease, MemberSettings
from penstock.http.http_message import HttpRequest, Response, json_document, json_request
from penstock.http.steps import Calls
from penstock.model import TopicPartition
from penstock_core.errors import ErrorCode, PenstockError


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
        armed=_partitions(answer["armed"]) if "armed" in answer else None,
    )


def _partitions(by_topic_id: Mapping[str, Sequence[int]]) -> frozenset[tuple[str, int]]:
    return frozenset((topic_id, number) for topic_id, numbers in by_topic_id.items() for number in numbers)
