"""The calls by which operators manage groups. Every call is one request, where nothing else is said."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.answers import value_of
from penstock.arguments import check, check_mapping, check_numbers, check_whole, is_whole
from penstock.calls import all_pages, checked_topic, group_path, raise_first_error
from penstock.group_model import Group, GroupDescription, GroupMember, GroupPartition, ResetOffset
from penstock.http_message import json_request
from penstock.steps import Calls


def list_groups() -> Calls[list[Group]]:
    """One request per page."""
    return [value_of(Group, each) for each in (yield from all_pages("/v1/groups", "groups"))]


def describe_group(name: str) -> Calls[GroupDescription]:
    answer = yield json_request("GET", group_path(name))
    return GroupDescription(
        group=value_of(Group, answer),
        members=tuple(value_of(GroupMember, each) for each in answer["members"]),
        partitions=tuple(value_of(GroupPartition, each) for each in answer["partitions"]),
    )


def alter_group(name: str, config: Mapping[str, Any]) -> Calls[Group]:
    check_mapping("config", config, "{'session_timeout_ms': 30_000}")
    body = {"config": dict(config)}
    return value_of(Group, (yield json_request("PATCH", group_path(name), body=body, is_repeatable=True)))


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
    raise_first_error(answer["partitions"])
    return {each["partition"]: value_of(ResetOffset, each) for each in answer["partitions"]}


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
