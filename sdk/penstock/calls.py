"""The calls of the HTTP API but produce and fetch (record_calls.py), as procedures: requests out, answers in.

Every call is one request, where nothing else is said. `Client.call` carries them out. They raise the classes of
penstock.errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from penstock.answers import value_of
from penstock.arguments import (
    check,
    check_mapping,
    check_numbers,
    check_text,
    check_whole,
    checked_name,
    checked_offsets,
    is_whole,
)
from penstock.errors import error_from_json
from penstock.http_message import json_request
from penstock.model import (
    CommittedOffset,
    OffsetAndTimestamp,
    PartitionOffsets,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.steps import Calls
from penstock_core.ids import parse_group_name, parse_topic_name
from penstock_core.limits import COMMIT_OFFSETS_MAX

_CONFIG_EXAMPLE = "{'retention_ms': 86_400_000}"

# Topics.


def create_topic(name: str, partitions: int, config: Mapping[str, Any]) -> Calls[Topic]:
    check_whole("partitions", partitions, 1)
    check_mapping("config", config, _CONFIG_EXAMPLE)
    body = {"name": checked_topic(name), "partitions": partitions, "config": dict(config)}
    return value_of(Topic, (yield json_request("POST", "/v1/topics", body=body)))


def list_topics() -> Calls[list[Topic]]:
    """One request per page."""
    return [value_of(Topic, each) for each in (yield from all_pages("/v1/topics", "topics"))]


def describe_topic(name: str) -> Calls[TopicDescription]:
    answer = yield json_request("GET", topic_path(name))
    offsets = (value_of(PartitionOffsets, each) for each in answer["offsets"])
    return TopicDescription(topic=value_of(Topic, answer), offsets=tuple(offsets))


def topic_metadata(name: str) -> Calls[Topic]:
    """Partitions and settings without offsets: all that producing and consuming need, for one read."""
    return value_of(Topic, (yield json_request("GET", "/v1/metadata", {"topic": checked_topic(name)})))


def alter_topic(name: str, config: Mapping[str, Any]) -> Calls[Topic]:
    check_mapping("config", config, _CONFIG_EXAMPLE)
    return (yield from _change_topic(name, {"config": dict(config)} if config else {}))


def add_partitions(name: str, partitions: int) -> Calls[Topic]:
    check_whole("partitions", partitions, 1)
    return (yield from _change_topic(name, {"partitions": partitions}))


def _change_topic(name: str, body: Mapping[str, Any]) -> Calls[Topic]:
    return value_of(Topic, (yield json_request("PATCH", topic_path(name), body=body, is_repeatable=True)))


def delete_topic(name: str) -> Calls[None]:
    yield json_request("DELETE", topic_path(name))


def truncate(name: str, before_offsets: Mapping[int, int]) -> Calls[dict[int, int]]:
    check_numbers("before_offsets", before_offsets)
    body = {str(partition): offset for partition, offset in before_offsets.items()}
    answer = yield json_request("POST", f"{topic_path(name)}/truncate", body=body, is_repeatable=True)
    raise_first_error(answer["partitions"])
    return {each["partition"]: each["log_start_offset"] for each in answer["partitions"]}


# Offsets.


def list_offsets(
    name: str, timestamp: int | str, partition: int | None = None
) -> Calls[dict[int, OffsetAndTimestamp | None]]:
    """By partition; `timestamp_ms` is -1 for "earliest" and "latest"."""
    check(
        isinstance(timestamp, str) or is_whole(timestamp),
        f"timestamp={timestamp!r:.100}: use 'earliest', 'latest', or milliseconds since 1970",
    )
    query = {"timestamp": str(timestamp)}
    if partition is not None:
        query["partition"] = str(partition)
    answer = yield json_request("GET", f"{topic_path(name)}/offsets", query)
    raise_first_error(answer["offsets"])
    return {each["partition"]: _offset_and_timestamp(each) for each in answer["offsets"]}


def commit_offsets(group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> Calls[None]:
    """Commit (offset, metadata) per partition; one request per COMMIT_OFFSETS_MAX. Raises the first partition's error
    after all were tried."""
    items = [
        {"topic": checked_topic(topic), "partition": partition, "offset": offset, "metadata": metadata}
        for (topic, partition), (offset, metadata) in offsets.items()
    ]
    results: list[Mapping[str, Any]] = []
    for start in range(0, len(items), COMMIT_OFFSETS_MAX):
        body = {"offsets": items[start : start + COMMIT_OFFSETS_MAX]}
        answer = yield json_request("POST", f"{group_path(group)}/offsets", body=body, is_repeatable=True)
        results += answer["results"]
    raise_first_error(results)


def committed_offsets(group: str, topic: str | None = None) -> Calls[dict[TopicPartition, CommittedOffset]]:
    query = {} if topic is None else {"topic": checked_topic(topic)}
    answer = yield json_request("GET", f"{group_path(group)}/offsets", query)
    return {
        TopicPartition(each["topic"], each["partition"]): value_of(CommittedOffset, {"metadata": "", **each})
        for each in answer["offsets"]
    }


def group_offsets(group: str, topic: str | None) -> Calls[list[CommittedOffset]]:
    """What the group has committed, sorted by partition."""
    found = yield from committed_offsets(group, topic)
    return [found[partition] for partition in sorted(found)]


def commit_group_offsets(group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> Calls[None]:
    """As `commit_offsets`, with the same metadata for all."""
    check_text("metadata", metadata)
    checked = checked_offsets("offsets", offsets)
    yield from commit_offsets(group, {partition: (offset, metadata) for partition, offset in checked.items()})


def offsets_of(name: str, timestamp: int | str) -> Calls[dict[int, int | None]]:
    """As `list_offsets`, of all partitions, without their timestamps."""
    found = yield from list_offsets(name, timestamp)
    return {partition: None if at is None else at.offset for partition, at in found.items()}


def all_partitions(topics: Iterable[str]) -> Calls[list[TopicPartition]]:
    """All partitions of the topics: one request each."""
    check(
        isinstance(topics, Iterable) and not isinstance(topics, str),
        f"topics={topics!r:.100}: give a list of names, such as ['orders']",
    )
    found: list[TopicPartition] = []
    for name in topics:
        topic = yield from topic_metadata(name)
        found += [TopicPartition(name, number) for number in range(topic.partitions)]
    return found


# Zones.


def list_zones() -> Calls[list[Zone]]:
    return [value_of(Zone, each) for each in (yield json_request("GET", "/v1/zones"))["zones"]]


def move_zone(zone: str, state: str, reason: str) -> Calls[Zone]:
    check_text("zone", zone)
    check_text("reason", reason)
    body = {"state": state, "reason": reason}
    return value_of(
        Zone, (yield json_request("POST", f"/v1/zones/{quote(zone, safe='')}", body=body, is_repeatable=True))
    )


def all_pages(path: str, name: str) -> Calls[list[Mapping[str, Any]]]:
    """What is listed under `name`, page by page."""
    listed: list[Mapping[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        page = yield json_request("GET", path, query)
        listed += page[name]
        if not page.get("next_after"):
            return listed
        query = {"after": page["next_after"]}


def topic_path(name: str) -> str:
    """`/v1/topics/{name}`. Raises InvalidError for what cannot be a name (and could be another path)."""
    return f"/v1/topics/{checked_topic(name)}"


def group_path(name: str) -> str:
    """`/v1/groups/{name}`. Raises InvalidError for what cannot be a name."""
    return f"/v1/groups/{checked_name(parse_group_name, name)}"


def checked_topic(name: str) -> str:
    """The name, if it may be one. Raises InvalidError."""
    return checked_name(parse_topic_name, name)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def raise_first_error(results: Iterable[Mapping[str, Any]]) -> None:
    """Raise the error of the first that has one."""
    for each in results:
        if "error" in each:
            raise error_from_json(each["error"])


def _offset_and_timestamp(each: Mapping[str, Any]) -> OffsetAndTimestamp | None:
    if each["offset"] is None:
        return None
    timestamp_ms = each.get("timestamp_ms")
    return OffsetAndTimestamp(each["offset"], -1 if timestamp_ms is None else timestamp_ms)
