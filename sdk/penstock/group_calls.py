"""The calls of a group's members: heartbeats, and commits under leases. Requests out, answers in."""

import logging
from collections.abc import Generator, Mapping
from typing import Any

from penstock.calls import checked_topic, group_path
from penstock.errors import UnavailableError, error_from_json
from penstock.heartbeat import Heartbeat, HeartbeatAnswer, Lease, MemberSettings
from penstock.http_message import Request, Response, json_document, json_request
from penstock.model import TopicPartition
from penstock.steps import Calls
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import COMMIT_OFFSETS_MAX


def beat(group: str, heartbeat: Heartbeat) -> Generator[Request, Response, HeartbeatAnswer | PenstockError]:
    """One try of a heartbeat, which never raises an error: membership.py decides what it means."""
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
    group: str, member: MemberSettings, offsets: Mapping[TopicPartition, tuple[int, Lease]], *, may_go_back: bool
) -> Calls[dict[TopicPartition, PenstockError]]:
    """Commit offsets, each under its lease; what was refused, by partition. One request per COMMIT_OFFSETS_MAX."""
    items = [
        {
            "topic": checked_topic(topic),
            "partition": partition,
            "offset": offset,
            "lease_epoch": lease.lease_epoch,
            "may_go_back": may_go_back,
        }
        for (topic, partition), (offset, lease) in offsets.items()
    ]
    refused: dict[TopicPartition, PenstockError] = {}
    for start in range(0, len(items), COMMIT_OFFSETS_MAX):
        body: dict[str, Any] = {"member_id": member.member_id, "offsets": items[start : start + COMMIT_OFFSETS_MAX]}
        if member.instance_id is not None:
            body["instance_id"] = member.instance_id
        answer = yield json_request("POST", f"{group_path(group)}/offsets", body=body, is_repeatable=True)
        for each in answer["results"]:
            if "error" in each:
                refused[TopicPartition(each["topic"], each["partition"])] = error_from_json(each["error"])
    return refused


def _heartbeat_answer(answer: Mapping[str, Any]) -> HeartbeatAnswer:
    granted = {
        TopicPartition(each["topic"], each["partition"]): Lease(
            topic_id=each["topic_id"], lease_epoch=each["lease_epoch"], offset=each["offset"]
        )
        for each in answer["granted"]
    }
    return HeartbeatAnswer(
        epoch=answer["epoch"],
        service_session=answer["session"],
        heartbeat_after_ms=answer["heartbeat_after_ms"],
        session_timeout_ms=answer["session_timeout_ms"],
        is_complete=answer["is_complete"],
        granted=granted,
        revoked=frozenset((topic_id, number) for topic_id, numbers in answer["revoked"].items() for number in numbers),
    )
