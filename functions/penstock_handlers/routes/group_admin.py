"""/v1/groups for operators: list, describe, alter, delete, reset and delete offsets."""

from collections.abc import Callable
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.acls.rule import Kind, Operation
from penstock_core.groups.group import CONSUMER, GroupConfig, GroupState, Member, group_config_to_json
from penstock_core.ids import GroupName
from penstock_core.limits import GROUP_LIST_MAX, GROUP_PAGE_MAX
from penstock_handlers.edge.fields import partition_number
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
from penstock_handlers.edge.models.answer_models import (
    GroupAnswer,
    GroupDescriptionAnswer,
    GroupList,
    GroupMemberAnswer,
    GroupPartitionAnswer,
)
from penstock_handlers.edge.models.request_models import AlterGroup, DeleteOffsets, ResetOffsets
from penstock_handlers.edge.models.reset_answer import DeletedOffsets, ResetResults, deleted_offsets, reset_results
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.delete_offsets import delete_offsets
from penstock_service.groups.describe_group import GroupPartition, describe_group, list_groups
from penstock_service.groups.group_document import alter_group
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.topics.list_offsets import OffsetSpec

app = JsonApp("groups")


@app.operation("GET /v1/groups", "listGroups", "List groups", parameters=PAGED)
def list_all(limit: Annotated[Digits, Query(ge=1, le=GROUP_LIST_MAX)] = GROUP_LIST_MAX, after: After = "") -> GroupList:
    """List the groups that you may describe by name, `limit` at a time, from behind `after`."""
    is_shown = caller_of(app).sees(Kind.GROUP)
    groups, next_after = list_groups(instance_of(app).stores.memberships, limit, after, is_shown)
    return {"groups": [_group(name, state) for name, state in groups], "next_after": next_after}


@app.operation("GET /v1/groups/<group>", "describeGroup", "Describe a group, with lag", parameters=PAGED)
def describe(
    group: Annotated[str, Path()],
    limit: Annotated[Digits, Query(ge=1, le=GROUP_PAGE_MAX)] = GROUP_PAGE_MAX,
    after: After = "",
) -> GroupDescriptionAnswer:
    """Describe a group: its members, and each partition's owner, committed offset and lag; `limit` at a time."""
    access = caller_of(app)

    def is_shown(topic: str) -> bool:
        return access.may(Operation.DESCRIBE, Kind.TOPIC, topic)

    found = describe_group(instance_of(app), group, after, limit)
    members = [_member(member, is_shown) for member in found.members]
    shown = [each for each in found.partitions if is_shown(each.topic)]
    partitions = [_partition(each) for each in shown]
    places = [*(str(each.name) for each in found.members), *(str(each.partition) for each in shown)]
    fitting, next_after = fitting_page([*members, *partitions], found.next_after, places.__getitem__)
    return {
        **_group(found.group, found.state),
        "member_count": found.member_count,
        "members": members[: len(fitting)],
        "partitions": partitions[: max(0, len(fitting) - len(members))],
        "next_after": next_after,
    }


@app.operation("PATCH /v1/groups/<group>", "alterGroup", "Alter a group's settings")
def alter(group: Annotated[str, Path()], request: AlterGroup) -> GroupAnswer:
    """Change some of a group's settings."""
    state = alter_group(instance_of(app), group, request.config, principal_name(app))
    return _group(state.name, state)


@app.operation("DELETE /v1/groups/<group>", "deleteGroup", "Delete a group", status_code=204)
def delete(group: Annotated[str, Path()]) -> Response[None]:
    """Delete a group without members, with its committed offsets."""
    delete_group(instance_of(app), group)
    return Response(status_code=204)


@app.operation("POST /v1/groups/<group>/reset", "resetOffsets", "Reset a group's offsets")
def reset(group: Annotated[str, Path()], request: ResetOffsets) -> ResetResults:
    """Set a group's offsets in one topic, or show what would change."""
    caller_of(app).require(Operation.READ, Kind.TOPIC, request.topic)
    given = request.offsets
    to = ResetTo(
        end=None if request.to is None else OffsetSpec(request.to),
        timestamp_ms=request.timestamp_ms,
        shift_by=request.shift_by,
        offsets=None if given is None else {partition_number(name): offset for name, offset in given.items()},
    )
    results = reset_offsets(
        instance_of(app),
        group,
        request.topic,
        to,
        request.partitions,
        is_dry_run=request.dry_run,
        is_forced=request.force,
        principal=principal_name(app),
    )
    return reset_results(results)


@app.operation("POST /v1/groups/<group>/offsets/delete", "deleteOffsets", "Delete a group's offsets in a topic")
def delete_some(group: Annotated[str, Path()], request: DeleteOffsets) -> DeletedOffsets:
    """Delete a group's committed offsets in one topic, which none of its members reads."""
    caller_of(app).require(Operation.READ, Kind.TOPIC, request.topic)
    return deleted_offsets(delete_offsets(instance_of(app), group, request.topic, request.partitions))


def _group(name: GroupName, state: GroupState | None) -> GroupAnswer:
    """The group's answer. `state` is None if no member has ever joined, as in a group of simple consumers."""
    known = state or GroupState(name=name, config=GroupConfig())
    return {
        "group": name,
        "epoch": known.epoch,
        "protocol_type": CONSUMER if known.document is None else known.document.protocol_type,
        "member_count": known.member_count if known.document is None else known.document.member_count,
        "config": group_config_to_json(known.config),
        "changed_at_ms": known.changed_at_ms,
    }


def _member(member: Member, is_shown: Callable[[str], bool]) -> GroupMemberAnswer:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "topics": [*filter(is_shown, member.subscription.topics)],
        "patterns": [*member.subscription.patterns],
        "epoch": member.epoch,
        "session": member.session,
        "sequence": member.sequence,
        "joined_at_ms": member.joined_at_ms,
        "session_ends_at_ms": member.deadline_ms,
        "session_timeout_ms": member.session_timeout_ms,
    }


def _partition(each: GroupPartition) -> GroupPartitionAnswer:
    return {
        "topic": each.topic,
        "topic_id": each.partition.topic_id,
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
        "oldest_age_ms": each.oldest_age_ms,
        "waits_for": each.waits_for,
    }


serve = serve_with(app)
