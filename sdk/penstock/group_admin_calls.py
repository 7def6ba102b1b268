"""The calls by which operators manage groups. Every call is one request, where nothing else is said."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.arguments import check, check_mapping, check_numbers, check_whole, is_whole
from penstock.calls import checked_topic, group_path
from penstock.errors import error_from_json
from penstock.group_model import Group, GroupDescription, GroupMember, GroupPartition, ResetOffset
from penstock.http_message import json_request
from penstock.steps import Calls


def list_groups() -> Calls[list[Group]]:
    """One request per page."""
    groups: list[Group] = []
    query: dict[str, str] = {}
    while True:
        page = yield json_request("GET", "/v1/groups", query)
        groups += [_group(each) for each in page["groups"]]
        if not page.get("next_after"):
            return groups
        query = {"after": page["next_after"]}


def describe_group(name: str) -> Calls[GroupDescription]:
    answer = yield json_request("GET", group_path(name))
    return GroupDescription(
        group=_group(answer),
        members=tuple(_member(each) for each in answer["members"]),
        partitions=tuple(_partition(each) for each in answer["partitions"]),
    )


def alter_group(name: str, config: Mapping[str, Any]) -> Calls[Group]:
    check_mapping("config", config, "{'session_timeout_ms': 30_000}")
    body = {"config": dict(config)}
    return _group((yield json_request("PATCH", group_path(name), body=body, is_repeatable=True)))


def delete_group(name: str) -> Calls[None]:
    yield json_request("DELETE", group_path(name))


def reset_offsets(
    name: str,
    topic: str,
    *,
    to: str | None,
    timestamp_ms: int | None,
    shift_by: int | None,
    offsets: Mapping[int, int] | None,
    partitions: Sequence[int] | None,
    dry_run: bool,
    force: bool,
) -> Calls[dict[int, ResetOffset]]:
    """Raises the first partition's error after all were tried. Not sent again after a lost answer if it shifts."""
    _check_reset(to, timestamp_ms, shift_by, offsets, partitions)
    body: dict[str, Any] = {
        "topic": checked_topic(topic),
        "partitions": None if partitions is None else [*partitions],
        "to": to,
        "timestamp_ms": timestamp_ms,
        "shift_by": shift_by,
        "offsets": None if offsets is None else {str(partition): offset for partition, offset in offsets.items()},
        "dry_run": dry_run,
        "force": force,
    }
    is_repeatable = shift_by is None or dry_run
    answer = yield json_request("POST", f"{group_path(name)}/reset", body=body, is_repeatable=is_repeatable)
    for each in answer["partitions"]:
        if "error" in each:
            raise error_from_json(each["error"])
    return {
        each["partition"]: ResetOffset(old_offset=each["old_offset"], new_offset=each["new_offset"])
        for each in answer["partitions"]
    }


def _check_reset(to: object, timestamp_ms: object, shift_by: object, offsets: object, partitions: object) -> None:
    check(to in (None, "earliest", "latest"), f"to={to!r:.100}: use 'earliest' or 'latest'")
    if timestamp_ms is not None:
        check_whole("timestamp_ms", timestamp_ms, 0)
    check(shift_by is None or is_whole(shift_by), f"shift_by={shift_by!r:.100}: use a whole number")
    if offsets is not None:
        check_numbers("offsets", offsets)
    if partitions is not None:
        is_list = isinstance(partitions, Iterable) and not isinstance(partitions, str | bytes)
        check(is_list, f"partitions={partitions!r:.100}: give a list of numbers, such as [0, 1]")
        assert isinstance(partitions, Iterable)
        for each in partitions:
            check_whole("partitions: partition", each, 0)


def _group(answer: Mapping[str, Any]) -> Group:
    return Group(
        group=answer["group"],
        epoch=answer["epoch"],
        member_count=answer["member_count"],
        config=answer["config"],
        changed_at_ms=answer["changed_at_ms"],
    )


def _member(answer: Mapping[str, Any]) -> GroupMember:
    return GroupMember(
        member_id=answer["member_id"],
        instance_id=answer["instance_id"],
        client_id=answer["client_id"],
        topics=tuple(answer["topics"]),
        patterns=tuple(answer["patterns"]),
        epoch=answer["epoch"],
        joined_at_ms=answer["joined_at_ms"],
        session_ends_at_ms=answer["session_ends_at_ms"],
    )


def _partition(answer: Mapping[str, Any]) -> GroupPartition:
    return GroupPartition(
        topic=answer["topic"],
        partition=answer["partition"],
        assigned_to=answer["assigned_to"],
        owner=answer["owner"],
        lease_epoch=answer["lease_epoch"],
        offset=answer["offset"],
        metadata=answer["metadata"],
        committed_at_ms=answer["committed_at_ms"],
        log_start_offset=answer["log_start_offset"],
        high_watermark=answer["high_watermark"],
        lag=answer["lag"],
    )
