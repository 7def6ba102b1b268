"""The calls by which operators manage share groups. Every call is one request, unless its docs say more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.api.calls import all_pages, pages, raise_first_error, topic_path
from penstock.arguments import check, check_mapping, check_text, check_whole, checked_name, checked_topic
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model.fields import value_of
from penstock.model.groups import ResetOffset
from penstock.model.share import (
    DeadLetterCounts,
    PartitionLetters,
    Redrive,
    RedriveOptions,
    ShareGroup,
    ShareGroupDescription,
    ShareGroupPartition,
    ShareHolder,
)
from penstock_core.ids import parse_group_name

_CONFIG_EXAMPLE = "{'deliveries_max': 3, 'dead_letter_topic': 'orders.dead'}"


def create_share_group(name: str, topics: str | Iterable[str], config: Mapping[str, Any]) -> Calls[ShareGroup]:
    """Create the group, or give it these topics and settings if it exists."""
    return (yield from _put(name, {"topics": _checked_topics(topics), "config": _checked_config(config)}))


def alter_share_group(name: str, config: Mapping[str, Any], topics: str | Iterable[str] | None) -> Calls[ShareGroup]:
    """Change settings and topics of a group that exists. Two requests: the first one raises NotFoundError."""
    path = share_group_path(name)
    body: dict[str, Any] = {"config": _checked_config(config)}
    if topics is not None:
        body["topics"] = _checked_topics(topics)
    yield json_request("GET", path)
    return (yield from _put(name, body))


def _put(name: str, body: Mapping[str, Any]) -> Calls[ShareGroup]:
    answer = yield json_request("PUT", share_group_path(name), body=body, is_repeatable=True)
    return value_of(ShareGroup, answer)


def list_share_groups() -> Calls[list[ShareGroup]]:
    """All share groups, sorted by name. One request per page."""
    return [value_of(ShareGroup, each) for each in (yield from all_pages("/v1/share-groups", "share_groups"))]


def describe_share_group(name: str) -> Calls[ShareGroupDescription]:
    """The group and its partitions. One request per page."""
    found = yield from pages(share_group_path(name))
    partitions = (_partition(each) for page in found for each in page["partitions"])
    group = value_of(ShareGroup, found[-1])
    rank = {topic: index for index, topic in enumerate(group.topics)}
    return ShareGroupDescription(
        group=group,
        partitions=tuple(sorted(partitions, key=lambda each: (rank.get(each.topic, len(rank)), each.partition))),
    )


def _partition(answer: Mapping[str, Any]) -> ShareGroupPartition:
    holders = tuple(value_of(ShareHolder, each) for each in answer.get("holders", ()))
    return value_of(ShareGroupPartition, {**answer, "holders": holders})


def delete_share_group(name: str) -> Calls[None]:
    """Delete the group and its state. Not repeatable: a second delete could meet a new group of the name."""
    yield json_request("DELETE", share_group_path(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareResetTarget:
    """The place to go on at: you give one field. Raises InvalidError for a wrong value."""

    to: str | None = None
    offset: int | None = None
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        given = [each for each in (self.to, self.offset, self.timestamp_ms) if each is not None]
        check(len(given) == 1, "give one of to, offset and timestamp_ms")
        check(self.to in (None, "earliest", "latest"), f"to={self.to!r:.100}: use 'earliest' or 'latest'")
        for name in ("offset", "timestamp_ms"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 0)

    def to_json(self) -> str | dict[str, int]:
        """The target as the HTTP API takes it."""
        if self.to is not None:
            return self.to
        if self.offset is not None:
            return {"offset": self.offset}
        assert self.timestamp_ms is not None
        return {"timestamp_ms": self.timestamp_ms}


def reset_share_group(
    name: str, topic: str, target: ShareResetTarget, partitions: Sequence[int] | None, *, dry_run: bool
) -> Calls[dict[int, ResetOffset]]:
    """Raises the first partition's error after all were tried."""
    numbers = None if partitions is None else list(partitions)
    for each in numbers or ():
        check_whole("partitions: partition", each, 0)
    body = {"topic": checked_topic(topic), "partitions": numbers, "to": target.to_json(), "dry_run": dry_run}
    answer = yield json_request("POST", f"{share_group_path(name)}/reset", body=body, is_repeatable=True)
    raise_first_error(answer["partitions"])
    return {each["partition"]: value_of(ResetOffset, each) for each in answer["partitions"]}


def describe_dead_letters(topic: str) -> Calls[DeadLetterCounts]:
    """Which letters of the topic are open."""
    answer = yield json_request("GET", f"{topic_path(topic)}/dead-letters")
    partitions = tuple(
        PartitionLetters(
            partition=each["partition"],
            records=each["records"],
            open=each["open"],
            open_ranges=tuple((start, end) for start, end in each["open_ranges"]),
            ranges_from=each["ranges_from"],
        )
        for each in answer["partitions"]
    )
    return DeadLetterCounts(records=answer["records"], open=answer["open"], partitions=partitions)


def redrive(topic: str, wish: RedriveOptions) -> Calls[Redrive]:
    """Move some records of a dead-letter topic. A repeat goes on: it moves no record twice."""
    to, policy, record = wish.get("to"), wish.get("filter"), wish.get("record")
    records_max, cursor, is_drop = wish.get("records_max"), wish.get("cursor"), wish.get("drop", False)
    check(not (is_drop and to is not None), f"to={to!r} with drop: a dropped letter moves nowhere")
    if record is not None:
        check_whole("record: partition", record[0], 0)
        check_whole("record: offset", record[1], 0)
    if policy is not None:
        check_mapping("filter", policy, "{'type': ['order']}")
    if records_max is not None:
        check_whole("records_max", records_max, 1)
    if cursor is not None:
        check_text("cursor", cursor)
    body = {
        "to": None if to is None else checked_topic(to),
        "filter": None if policy is None else dict(policy),
        "records_max": records_max,
        "cursor": cursor,
    }
    if record is not None:
        body["record"] = {"partition": record[0], "offset": record[1]}
    if is_drop:
        body["drop"] = True
    return value_of(
        Redrive, (yield json_request("POST", f"{topic_path(topic)}/redrive", body=body, is_repeatable=True))
    )


def share_group_path(name: str) -> str:
    """`/v1/share-groups/{name}`. Raises InvalidError for a bad name."""
    return f"/v1/share-groups/{checked_name(parse_group_name, name)}"


def _checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    check_mapping("config", config, _CONFIG_EXAMPLE)
    return dict(config)


def _checked_topics(topics: str | Iterable[str]) -> list[str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    check(bool(names), f"topics={topics!r:.100}: give one or more")
    return [checked_topic(name) for name in names]
