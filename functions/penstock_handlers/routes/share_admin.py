"""/v1/share-groups for operators: list, create and alter, describe, delete, reset."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import GROUP_PAGE_MAX, NAME_LENGTH_MAX, OFFSET_MAX, SHARE_GROUP_LIST_MAX
from penstock_core.quotas.quota import ClaimKind
from penstock_core.share.share_group import ShareGroup, share_group_config_to_json
from penstock_core.share.share_state import Holder
from penstock_handlers.edge.json_api import (
    PAGED,
    After,
    Digits,
    JsonApp,
    caller_of,
    fitting_page,
    instance_of,
    principal_name,
    serve_with,
)
from penstock_handlers.edge.models.request_models import PutShareGroup, ResetShareGroup
from penstock_handlers.edge.models.reset_answer import ResetResults, reset_results
from penstock_handlers.edge.models.share_answers import (
    ShareGroupAnswer,
    ShareGroupDescriptionAnswer,
    ShareGroupList,
    ShareGroupPartitionAnswer,
    ShareHolderAnswer,
    ShareRecordAnswer,
)
from penstock_service.quotas.claim_resource import forget_claim
from penstock_service.share.admin.describe_share_group import (
    ShareGroupPartition,
    ShareRecordState,
    describe_share_group,
    describe_share_record,
    list_share_groups,
    place_of,
)
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, delete_share_group, reset_share_group
from penstock_service.topics.list_offsets import OffsetSpec

app = JsonApp("share groups")


@app.operation("GET /v1/share-groups", "listShareGroups", "List share groups", parameters=PAGED)
def list_all(
    limit: Annotated[Digits, Query(ge=1, le=SHARE_GROUP_LIST_MAX)] = SHARE_GROUP_LIST_MAX, after: After = ""
) -> ShareGroupList:
    """List the share groups that you may describe by name, `limit` at a time, from behind `after`."""
    shown, next_after = list_share_groups(instance_of(app), limit, after, caller_of(app).sees(Kind.SHARE_GROUP))
    page, next_after = fitting_page([_group(group) for group in shown], next_after, lambda last: shown[last].name)
    return {"share_groups": page, "next_after": next_after}


@app.operation("PUT /v1/share-groups/<group>", "putShareGroup", "Create a share group, or alter it")
def put(group: Annotated[str, Path()], request: PutShareGroup) -> ShareGroupAnswer:
    """Create a share group, or change its topics and some of its settings."""
    found, _ = put_share_group(instance_of(app), group, request.topics, request.config, caller_of(app))
    return _group(found)


@app.operation(
    "GET /v1/share-groups/<group>",
    "describeShareGroup",
    "Describe a share group, with lag",
    parameters=(*PAGED, "topic", "partition", "offset"),
)
def describe(
    group: Annotated[str, Path()],
    limit: Annotated[Digits, Query(ge=1, le=GROUP_PAGE_MAX)] = GROUP_PAGE_MAX,
    after: After = "",
    topic: Annotated[str | None, Query(max_length=NAME_LENGTH_MAX, description="of one record to tell about")] = None,
    partition: Annotated[Digits | None, Query(ge=0, description="of that record")] = None,
    offset: Annotated[Digits | None, Query(ge=0, le=OFFSET_MAX, description="of that record")] = None,
) -> ShareGroupDescriptionAnswer:
    """Describe a share group, and what each partition has in flight, available and waiting; `limit` at a time.

    With `topic`, `partition` and `offset`, it describes that partition alone, and the state of that record.
    """
    access = caller_of(app)
    if topic is not None and partition is not None and offset is not None:
        access.require(Operation.DESCRIBE, Kind.TOPIC, topic)
        found, one, record = describe_share_record(instance_of(app), group, topic, partition, offset)
        return {**_group(found), "partitions": [_partition(one)], "next_after": None, "record": _record(record)}
    if any(each is not None for each in (topic, partition, offset)):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topic={topic!r:.100}, partition={partition}, offset={offset}: give all three to ask for a record",
        )
    found, chosen, next_after = describe_share_group(instance_of(app), group, after, limit)
    shown = [each for each in chosen if access.may(Operation.DESCRIBE, Kind.TOPIC, each.topic)]
    partitions, next_after = fitting_page(
        [_partition(each) for each in shown],
        next_after,
        lambda last: place_of(shown[last].topic, shown[last].key),
    )
    return {
        **_group(found),  # type: ignore[typeddict-item] # mypy thinks that a group could have a record
        "partitions": partitions,
        "next_after": next_after,
    }


@app.operation("DELETE /v1/share-groups/<group>", "deleteShareGroup", "Delete a share group", status_code=204)
def delete(group: Annotated[str, Path()]) -> Response[None]:
    """Delete a share group. All of its locks are lost."""
    share_group_id = delete_share_group(instance_of(app), group)
    forget_claim(instance_of(app), principal_name(app), ClaimKind.SHARE_GROUP, group, share_group_id)
    return Response(status_code=204)


@app.operation("POST /v1/share-groups/<group>/reset", "resetShareGroup", "Reset a share group")
def reset(group: Annotated[str, Path()], request: ResetShareGroup) -> ResetResults:
    """Set the place at which a share group goes on in a topic, or show it. A reset loses all of its locks there."""
    caller_of(app).require(Operation.READ, Kind.TOPIC, request.topic)
    results = reset_share_group(
        instance_of(app),
        group,
        request.topic,
        _reset_to(request),
        request.partitions,
        is_dry_run=request.dry_run,
    )
    return reset_results(results)


def _reset_to(request: ResetShareGroup) -> ShareResetTo:
    to = request.to
    if isinstance(to, str):
        return ShareResetTo(end=OffsetSpec(to))
    if (to.offset is None) == (to.timestamp_ms is None):
        raise PenstockError(ErrorCode.INVALID_REQUEST, "to: give exactly one of offset and timestamp_ms")
    return ShareResetTo(timestamp_ms=to.timestamp_ms, offset=to.offset)


def _group(group: ShareGroup) -> ShareGroupAnswer:
    return {
        "group": group.name,
        "share_group_id": group.share_group_id,
        "topics": [*group.ordered_topics],
        "config": share_group_config_to_json(group.config),
        "created_at_ms": group.created_at_ms,
    }


def _partition(each: ShareGroupPartition) -> ShareGroupPartitionAnswer:
    return {
        "topic": each.topic,
        "topic_id": each.key.topic_id,
        "partition": each.key.partition,
        "start_offset": each.start_offset,
        "position": each.position,
        "in_flight": each.in_flight,
        "available": each.available,
        "waiting": each.waiting,
        "lag": each.lag,
        "oldest_age_ms": each.oldest_age_ms,
        "waiting_age_ms": each.waiting_age_ms,
        "passed_over": each.passed_over,
        "passed_over_offset": each.passed_over_offset,
        "expired": each.expired,
        "holders": [*map(_holder, each.holders)],
        "holders_left_out": each.holders_left_out,
    }


def _record(each: ShareRecordState) -> ShareRecordAnswer:
    return {
        "state": each.state,
        "deliveries": each.deliveries,
        "consumer": each.consumer,
        "until_ms": each.until_ms,
        "is_dead": each.is_dead,
        "reason": each.reason,
    }


def _holder(each: Holder) -> ShareHolderAnswer:
    return {
        "consumer": each.consumer,
        "locks": each.locks,
        "records": each.records,
        "locked_until_ms": each.until_ms,
    }


serve = serve_with(app)
