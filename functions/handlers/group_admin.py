"""/v1/groups for operators: list, describe, alter, delete, reset offsets."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from handlers.entry import entry_point
from handlers.fields import partition_number
from handlers.json_api import broker_of, error_json, json_app, only_parameters, serve_with
from handlers.models import (
    AlterGroup,
    GroupAnswer,
    GroupDescriptionAnswer,
    GroupList,
    GroupMemberAnswer,
    GroupPartitionAnswer,
    ResetOffsets,
    ResetResult,
    ResetResults,
)
from penstock_broker.alter_group import alter_group
from penstock_broker.delete_group import delete_group
from penstock_broker.describe_group import GroupPartition, describe_group, list_groups
from penstock_broker.list_offsets import OffsetSpec
from penstock_broker.reset_offsets import ResetOffset, ResetTo, reset_offsets
from penstock_core.errors import PenstockError
from penstock_core.group import GroupConfig, GroupState, Member, group_config_to_json
from penstock_core.ids import GroupName
from penstock_core.limits import GROUP_LIST_MAX

app = json_app()
_TAG = ["groups"]


@app.get(
    "/v1/groups",
    operation_id="listGroups",
    summary="List groups",
    tags=_TAG,
    middlewares=[only_parameters("limit", "after")],
)
def list_all(
    limit: Annotated[int, Query(ge=1, le=GROUP_LIST_MAX)] = GROUP_LIST_MAX, after: Annotated[str, Query()] = ""
) -> GroupList:
    groups, next_after = list_groups(broker_of(app), limit, after)
    return {"groups": [_group(name, state) for name, state in groups], "next_after": next_after}


@app.get(
    "/v1/groups/<group>",
    operation_id="describeGroup",
    summary="Describe a group, with lag",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def describe(group: Annotated[str, Path()]) -> GroupDescriptionAnswer:
    found = describe_group(broker_of(app), group)
    return {
        **_group(found.group, found.state),
        "member_count": len(found.members),
        "members": [_member(member) for member in found.members],
        "partitions": [_partition(each) for each in found.partitions],
    }


@app.patch(
    "/v1/groups/<group>",
    operation_id="alterGroup",
    summary="Alter a group's settings",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def alter(group: Annotated[str, Path()], request: AlterGroup) -> GroupAnswer:
    state = alter_group(broker_of(app), group, request.config)
    return _group(state.name, state)


@app.delete(
    "/v1/groups/<group>",
    status_code=204,
    operation_id="deleteGroup",
    summary="Delete a group",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def delete(group: Annotated[str, Path()]) -> Response[None]:
    delete_group(broker_of(app), group)
    return Response(status_code=204)


@app.post(
    "/v1/groups/<group>/reset",
    operation_id="resetOffsets",
    summary="Reset a group's offsets",
    tags=_TAG,
    middlewares=[only_parameters()],
)
def reset(group: Annotated[str, Path()], request: ResetOffsets) -> ResetResults:
    given = request.offsets
    to = ResetTo(
        end=None if request.to is None else OffsetSpec(request.to),
        timestamp_ms=request.timestamp_ms,
        shift_by=request.shift_by,
        offsets=None if given is None else {partition_number(name): offset for name, offset in given.items()},
    )
    results = reset_offsets(
        broker_of(app),
        group,
        request.topic,
        to,
        request.partitions,
        is_dry_run=request.dry_run,
        is_forced=request.force,
    )
    return {"partitions": [_reset(*each) for each in results]}


def _group(name: GroupName, state: GroupState | None) -> GroupAnswer:
    """A group of simple consumers has no state."""
    known = state or GroupState(name=name, config=GroupConfig())
    return {
        "group": name,
        "epoch": known.epoch,
        "member_count": known.member_count,
        "config": group_config_to_json(known.config),
        "changed_at_ms": known.changed_at_ms,
    }


def _member(member: Member) -> GroupMemberAnswer:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "topics": [*member.subscription.topics],
        "patterns": [*member.subscription.patterns],
        "epoch": member.epoch,
        "joined_at_ms": member.joined_at_ms,
        "session_ends_at_ms": member.deadline_ms,
    }


def _partition(each: GroupPartition) -> GroupPartitionAnswer:
    return {
        "topic": each.topic,
        "partition": each.partition.partition,
        "assigned_to": None if each.assigned_to is None else each.assigned_to.member_id,
        "owner": None if each.owner is None else each.owner.member_id,
        "lease_epoch": each.lease.epoch,
        "offset": each.lease.offset,
        "metadata": each.lease.metadata,
        "committed_at_ms": each.lease.committed_at_ms,
        "log_start_offset": each.log_start_offset,
        "high_watermark": each.high_watermark,
        "lag": each.lag,
    }


def _reset(partition: int, result: ResetOffset | PenstockError) -> ResetResult:
    if isinstance(result, PenstockError):
        return {"partition": partition, "error": error_json(result)}
    return {"partition": partition, "old_offset": result.old_offset, "new_offset": result.new_offset}


serve = serve_with(app)
handler = entry_point(serve)
