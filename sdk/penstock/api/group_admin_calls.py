"""The calls by which operators manage groups. Every call is one request, unless its docs say more."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.calls import all_pages, group_path, pages, raise_first_error
from penstock.arguments import check, check_mapping, check_numbers, check_whole, checked_topic, is_whole
from penstock.errors import error_from_json
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.fields import value_of
from penstock.model.groups import Group, GroupDescription, GroupMember, GroupPartition, ResetOffset
from penstock_core.errors import PenstockError


def list_groups() -> Calls[list[Group]]:
    """All groups, sorted by name. One request per page."""
    return [value_of(Group, each) for each in (yield from all_pages("/v1/groups", "groups"))]


def describe_group(name: str) -> Calls[GroupDescription]:
    """The group, its members, and its partitions. One request per page."""
    found = yield from pages(group_path(name))
    partitions = (value_of(GroupPartition, each) for page in found for each in page["partitions"])
    return GroupDescription(
        group=value_of(Group, found[-1]),
        members=tuple(value_of(GroupMember, each) for page in found for each in page["members"]),
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
    )


def alter_group(name: str, config: Mapping[str, Any]) -> Calls[Group]:
    """Change settings of the group."""
    check_mapping("config", config, "{'session_timeout_ms': 30_000}")
    body = {"config": dict(config)}
    return value_of(Group, (yield json_request("PATCH", group_path(name), body=body, is_repeatable=True)))


def delete_group(name: str) -> Calls[None]:
    """Delete the group and its offsets."""
    yield json_request("DELETE", group_path(name))


def delete_offsets(name: str, topic: str, partitions: Sequence[int] | None) -> Calls[dict[int, int | None]]:
    """The offsets that went. Raises the first partition's error after all were tried."""
    found: dict[int, int | None] = {}
    for partition, outcome in (yield from try_delete_offsets(name, topic, partitions)).items():
        if isinstance(outcome, PenstockError):
            raise outcome
        found[partition] = outcome
    return found


def try_delete_offsets(
    name: str, topic: str, partitions: Sequence[int] | None
) -> Calls[dict[int, int | PenstockError | None]]:
    """The offsets that went, and the errors of the partitions whose offsets stay."""
    body = {"topic": checked_topic(topic), "partitions": _checked_numbers(partitions)}
    answer = yield json_request("POST", f"{group_path(name)}/offsets/delete", body=body)
    return {
        each["partition"]: error_from_json(each["error"]) if "error" in each else each["old_offset"]
        for each in answer["partitions"]
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """The offsets to set: you give one field. Raises InvalidError for a wrong value."""

    to: str | None
    timestamp_ms: int | None
    shift_by: int | None
    offsets: Mapping[int, int] | None

    def __post_init__(self) -> None:
        check(self.to in (None, "earliest", "latest"), f"to={self.to!r:.100}: use 'earliest' or 'latest'")
        if self.timestamp_ms is not None:
            check_whole("timestamp_ms", self.timestamp_ms, 0)
        check(self.shift_by is None or is_whole(self.shift_by), f"shift_by={self.shift_by!r:.100}: use a whole number")
        if self.offsets is not None:
            check_numbers("offsets", self.offsets)

    def to_json(self) -> dict[str, Any]:
        """The target as the HTTP API takes it."""
        by_text = None if self.offsets is None else {str(number): offset for number, offset in self.offsets.items()}
        return {"to": self.to, "timestamp_ms": self.timestamp_ms, "shift_by": self.shift_by, "offsets": by_text}


def reset_offsets(
    name: str, topic: str, target: ResetTarget, *, partitions: Sequence[int] | None, dry_run: bool, force: bool
) -> Calls[dict[int, ResetOffset]]:
    """Raises the first partition's error after all were tried. A shift is not sent again after a lost answer."""
    body: dict[str, Any] = {
        "topic": checked_topic(topic),
        "partitions": _checked_numbers(partitions),
        **target.to_json(),
        "dry_run": dry_run,
        "force": force,
    }
    is_repeatable = target.shift_by is None or dry_run
    answer = yield json_request("POST", f"{group_path(name)}/reset", body=body, is_repeatable=is_repeatable)
    raise_first_error(answer["partitions"])
    return {each["partition"]: value_of(ResetOffset, each) for each in answer["partitions"]}


def _checked_numbers(partitions: Sequence[int] | None) -> list[int] | None:
    if partitions is None:
        return None
    is_list = isinstance(partitions, Iterable) and not isinstance(partitions, str | bytes)
    check(is_list, f"partitions={partitions!r:.100}: give a list of numbers, such as [0, 1]")
    for each in partitions:
        check_whole("partitions: partition", each, 0)
    return list(partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """The group's version, and its document: None in a group in which the service assigns."""

    version: int
    data: bytes | None


def read_document(group: str) -> Calls[StoredDocument]:
    """The group's document. Raises UNKNOWN_GROUP. One request."""
    answer = yield json_request("GET", f"{group_path(group)}/document")
    data = answer["document"]
    return StoredDocument(version=answer["version"], data=None if data is None else base64.b64decode(data))


def put_document(group: str, version: int | None, protocol_type: str, member_count: int, data: bytes) -> Calls[int]:
    """The new version, after this document has replaced the one of `version`; None makes the group. One request.

    Raises CONCURRENT_UPDATE if the version is another one. It is never sent again after a lost answer.
    """
    body = {
        "version": version,
        "protocol_type": protocol_type,
        "member_count": member_count,
        "document": base64.b64encode(data).decode(),
    }
    answer = yield json_request("PUT", f"{group_path(group)}/document", body=body)
    return int(answer["version"])
