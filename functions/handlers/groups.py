"""/v1/groups for consumers: heartbeats of members, and committed offsets."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from handlers.entry import entry_point
from handlers.json_api import broker_of, error_json, json_app, only_parameters, serve_with
from handlers.models import (
    CommitOffsets,
    CommitResult,
    CommitResults,
    CommittedOffsets,
    GrantedLease,
    Heartbeat,
    HeartbeatAnswer,
)
from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_broker.committed_offsets import committed_offsets
from penstock_broker.heartbeat import Assignment, Beat, heartbeat, leave
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import parse_subscription
from penstock_core.ids import Partition, TopicId
from penstock_core.keys import PartitionKey
from penstock_core.lease import Lease

app = json_app()


@app.post(
    "/v1/groups/<group>/heartbeat",
    operation_id="heartbeat",
    summary="Join a group, stay, or leave it",
    tags=["groups"],
    middlewares=[only_parameters()],
)
def beat(group: Annotated[str, Path()], request: Heartbeat) -> HeartbeatAnswer:
    if request.leave and (request.subscription is not None or request.owned is not None):
        raise PenstockError(ErrorCode.INVALID_REQUEST, "a member that leaves names no subscription and holds nothing")
    return _assignment((leave if request.leave else heartbeat)(broker_of(app), group, _beat(request)))


@app.post(
    "/v1/groups/<group>/offsets",
    operation_id="commitOffsets",
    summary="Commit offsets of a group",
    tags=["groups"],
    middlewares=[only_parameters()],
)
def commit(group: Annotated[str, Path()], request: CommitOffsets) -> CommitResults:
    entries = [
        CommitEntry(
            topic=item.topic,
            partition=item.partition,
            offset=item.offset,
            metadata=item.metadata,
            lease_epoch=item.lease_epoch,
            may_go_back=item.may_go_back,
        )
        for item in request.offsets
    ]
    results = commit_offsets(broker_of(app), group, entries, request.member_id, request.instance_id)
    return {"results": [_to_json(*pair) for pair in zip(entries, results, strict=True)]}


@app.get(
    "/v1/groups/<group>/offsets",
    operation_id="committedOffsets",
    summary="Read a group's offsets",
    tags=["groups"],
    middlewares=[only_parameters("topic")],
)
def committed(group: Annotated[str, Path()], topic: Annotated[str | None, Query()] = None) -> CommittedOffsets:
    found = committed_offsets(broker_of(app), group, topic)
    return {
        "offsets": [
            {
                "topic": item.topic,
                "partition": item.partition.partition,
                "offset": item.offset,
                "metadata": item.metadata,
                "committed_at_ms": item.committed_at_ms,
            }
            for item in found
        ]
    }


def _beat(request: Heartbeat) -> Beat:
    subscribed, owned = request.subscription, request.owned
    return Beat(
        member_id=request.member_id,
        sequence=request.sequence,
        epoch=request.epoch,
        session=request.session,
        instance_id=request.instance_id,
        client_id=request.client_id,
        subscription=None if subscribed is None else parse_subscription(subscribed.topics, subscribed.patterns),
        owned=None
        if owned is None
        else frozenset(
            PartitionKey(TopicId(topic_id), Partition(number)) for topic_id, held in owned.items() for number in held
        ),
        config=request.config,
    )


def _assignment(told: Assignment) -> HeartbeatAnswer:
    revoked: dict[str, list[int]] = {}
    for key in told.revoked:
        revoked.setdefault(key.topic_id, []).append(key.partition)
    return {
        "epoch": told.epoch,
        "session": told.session,
        "heartbeat_after_ms": told.heartbeat_after_ms,
        "session_timeout_ms": told.session_timeout_ms,
        "is_complete": told.is_complete,
        "granted": [_granted(lease) for lease in told.granted],
        "revoked": revoked,
        "waiting": told.waiting,
    }


def _granted(lease: Lease) -> GrantedLease:
    return {
        "topic": lease.topic,
        "topic_id": lease.partition.topic_id,
        "partition": lease.partition.partition,
        "lease_epoch": lease.epoch,
        "offset": lease.offset,
        "metadata": lease.metadata,
    }


def _to_json(entry: CommitEntry, result: PenstockError | None) -> CommitResult:
    answer: CommitResult = {"topic": entry.topic, "partition": entry.partition}
    if result is not None:
        answer["error"] = error_json(result)
    return answer


serve = serve_with(app)
handler = entry_point(serve)
