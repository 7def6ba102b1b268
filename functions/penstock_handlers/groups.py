"""/v1/groups for consumers: heartbeats of members, committed offsets, and documents of groups whose leader assigns."""

import base64
from collections.abc import Iterable, Sequence
from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupState, checked_document, parse_subscription
from penstock_core.groups.lease import Lease, SeenCommit
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import GROUP_PAGE_MAX, OWNED_PARTITIONS_MAX
from penstock_core.outcomes import Outcomes
from penstock_core.text import check_label
from penstock_handlers.edge.access.request_access import where_allowed
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.json_api import (
    PAGED,
    After,
    Digits,
    JsonApp,
    caller_of,
    error_json,
    fitting_page,
    instance_of,
    principal_name,
    serve_with,
)
from penstock_handlers.edge.models.answer_models import (
    CommitResult,
    CommitResults,
    CommittedOffsetJson,
    CommittedOffsets,
    GrantedLease,
    GroupDocumentAnswer,
    HeartbeatAnswerJson,
)
from penstock_handlers.edge.models.request_models import (
    CommitOffsets,
    HeartbeatJson,
    PutGroupDocument,
    SeenCommitJson,
    WatchedPartition,
)
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_page
from penstock_service.groups.group_document import put_document, read_document
from penstock_service.groups.heartbeat import HeartbeatAnswer, HeartbeatRequest, heartbeat, leave

app = JsonApp("groups")


@app.operation("POST /v1/groups/<group>/heartbeat", "heartbeat", "Join a group, stay, or leave it")
def beat(group: Annotated[str, Path()], request: HeartbeatJson) -> HeartbeatAnswerJson:
    """Take a member's heartbeat, or its leave, and answer its leases."""
    if request.leave and (request.subscription is not None or request.owned is not None or request.watched):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "a member that leaves names no subscription, and holds and watches nothing"
        )
    instance, access, beat = instance_of(app), caller_of(app), _beat(request)
    if request.leave:
        return _answer_json(leave(instance, group, beat))
    if beat.subscription is not None:
        access.require(Operation.READ, Kind.TOPIC, *beat.subscription.topics)
    return _answer_json(heartbeat(instance, group, beat, access))


@app.operation("POST /v1/groups/<group>/offsets", "commitOffsets", "Commit offsets of a group")
def commit(group: Annotated[str, Path()], request: CommitOffsets) -> CommitResults:
    """Commit offsets of a group, each for itself."""
    entries = [
        CommitEntry(
            topic=item.topic,
            partition=item.partition,
            offset=item.offset,
            metadata=item.metadata,
            lease_epoch=item.lease_epoch,
            back_from=_seen(item.back_from),
            topic_id=item.topic_id,
            leader_epoch=item.leader_epoch,
        )
        for item in request.offsets
    ]
    instance, access = instance_of(app), caller_of(app)

    def commit_allowed(allowed: Sequence[CommitEntry]) -> Outcomes[None]:
        return commit_offsets(
            instance, group, allowed, request.member_id, request.instance_id, principal=access.principal.name
        )

    results = where_allowed(access, Operation.READ, entries, lambda entry: entry.topic, commit_allowed)
    return {"results": [_to_json(*pair) for pair in zip(entries, results, strict=True)]}


@app.operation(
    "GET /v1/groups/<group>/offsets", "committedOffsets", "Read a group's offsets", parameters=("topic", *PAGED)
)
def committed(
    group: Annotated[str, Path()],
    topic: Annotated[str | None, Query()] = None,
    limit: Annotated[Digits, Query(ge=1, le=GROUP_PAGE_MAX)] = GROUP_PAGE_MAX,
    after: After = "",
) -> CommittedOffsets:
    """List a group's committed offsets, of one topic or of all, `limit` at a time, from behind `after`."""
    access = caller_of(app)
    if topic is not None:
        access.require(Operation.DESCRIBE, Kind.TOPIC, topic)
    found, next_after = committed_page(instance_of(app), group, topic, after, limit)
    shown = [each for each in found if access.may(Operation.DESCRIBE, Kind.TOPIC, each.topic)]
    offsets: list[CommittedOffsetJson] = [
        {
            "topic": item.topic,
            "topic_id": item.partition.topic_id,
            "partition": item.partition.partition,
            "offset": item.offset,
            "metadata": item.metadata,
            "committed_at_ms": item.committed_at_ms,
            "leader_epoch": item.leader_epoch,
        }
        for item in shown
    ]
    page, next_after = fitting_page(offsets, next_after, lambda last: str(shown[last].partition))
    return {"offsets": page, "next_after": next_after}


@app.operation("GET /v1/groups/<group>/document", "readGroupDocument", "Read a group's document")
def document(group: Annotated[str, Path()]) -> GroupDocumentAnswer:
    """Read the document of a group whose leader assigns."""
    return _document_json(read_document(instance_of(app), group))


@app.operation("PUT /v1/groups/<group>/document", "putGroupDocument", "Replace a group's document")
def replace_document(group: Annotated[str, Path()], request: PutGroupDocument) -> GroupDocumentAnswer:
    """Replace the document of a group whose leader assigns, if its version is still the one that you read."""
    try:
        data = base64.b64decode(request.document, validate=True)
    except ValueError:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "document: it is not base64") from None
    document = checked_document(request.protocol_type, request.member_count, data)
    return _document_json(put_document(instance_of(app), group, request.version, document, principal_name(app)))


def _document_json(state: GroupState) -> GroupDocumentAnswer:
    found = state.document
    return {
        "version": state.version,
        "protocol_type": None if found is None else found.protocol_type,
        "member_count": state.member_count if found is None else found.member_count,
        "document": None if found is None else base64.b64encode(found.data).decode(),
    }


def _seen(commit: SeenCommitJson | None) -> SeenCommit | None:
    if commit is None:
        return None
    return SeenCommit(offset=Offset(commit.offset), committed_at_ms=commit.committed_at_ms)


def _beat(request: HeartbeatJson) -> HeartbeatRequest:
    check_label("client_id", request.client_id)
    subscribed, owned = request.subscription, request.owned
    owned_count = sum(map(len, (owned or {}).values()))
    if owned_count > OWNED_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"owned has {owned_count} partitions: a member holds {OWNED_PARTITIONS_MAX} at most, add members",
        )
    return HeartbeatRequest(
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
        watched=_watched(request.watched),
        session_timeout_ms=request.session_timeout_ms,
        looks_at_topics=request.looks_at_topics,
    )


def _watched(partitions: Sequence[WatchedPartition]) -> dict[PartitionKey, Offset]:
    watched = {
        PartitionKey(TopicId(each.topic_id), Partition(each.partition)): Offset(each.offset) for each in partitions
    }
    if len(watched) < len(partitions):
        raise PenstockError(ErrorCode.INVALID_REQUEST, "watched names a partition twice: give each one once")
    return watched


def _answer_json(answer: HeartbeatAnswer) -> HeartbeatAnswerJson:
    told: HeartbeatAnswerJson = {
        "epoch": answer.epoch,
        "session": answer.session,
        "heartbeat_after_ms": answer.heartbeat_after_ms,
        "session_timeout_ms": answer.session_timeout_ms,
        "is_complete": answer.is_complete,
        "granted": [_granted(lease, is_late=lease.partition in answer.late) for lease in answer.granted],
        "revoked": _by_topic_id(answer.revoked),
        "waiting": answer.waiting,
        "is_young": answer.is_young,
    }
    if answer.armed is not None:
        told["armed"] = _by_topic_id(sorted(answer.armed))
    return told


def _by_topic_id(keys: Iterable[PartitionKey]) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for key in keys:
        partitions.setdefault(key.topic_id, []).append(key.partition)
    return partitions


def _granted(lease: Lease, *, is_late: bool) -> GrantedLease:
    return {
        "topic": lease.topic,
        "topic_id": lease.partition.topic_id,
        "partition": lease.partition.partition,
        "lease_epoch": lease.epoch,
        "offset": lease.offset,
        "metadata": lease.metadata,
        "is_late": is_late,
    }


def _to_json(entry: CommitEntry, result: PenstockError | None) -> CommitResult:
    answer: CommitResult = {"topic": entry.topic, "partition": entry.partition}
    if result is not None:
        answer["error"] = error_json(result)
    return answer


serve = serve_with(app)
handler = entry_point(serve, uses_zones=False)
