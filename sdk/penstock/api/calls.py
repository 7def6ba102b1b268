"""The calls of the HTTP API as procedures: requests out, answers in. Produce and fetch have modules of their own.

Every call is one request, unless its docs say more. `Client.call` carries them out. They raise the classes of
penstock.errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from penstock.arguments import (
    check,
    check_mapping,
    check_numbers,
    check_text,
    check_whole,
    checked_name,
    checked_offsets,
    checked_partition,
    checked_partitions,
    checked_topic,
    is_whole,
)
from penstock.errors import TopicExistsError, UnavailableError, error_from_json
from penstock.http.http_message import BATCHES_TYPE, json_request
from penstock.http.steps import Calls
from penstock.model import (
    CommittedOffset,
    OffsetAndTimestamp,
    PartitionOffsets,
    ScheduledRecords,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.model.fields import value_of
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_group_name, parse_transactional_id
from penstock_core.limits import COMMIT_OFFSETS_MAX, OFFSET_MAX, REQUEST_PARTITIONS_MAX, SDK_PAGES_MAX

_CONFIG_EXAMPLE = "{'retention_ms': 86_400_000}"

# Topics.


def create_topic(name: str, partitions: int, config: Mapping[str, Any], *, exist_ok: bool = False) -> Calls[Topic]:
    """Create a topic. Not repeatable: after a lost answer it may exist. With `exist_ok` the one that exists will do."""
    check_whole("partitions", partitions, 1)
    check_mapping("config", config, _CONFIG_EXAMPLE)
    body = {"name": checked_topic(name), "partitions": partitions, "config": dict(config)}
    try:
        return value_of(Topic, (yield json_request("POST", "/v1/topics", body=body, is_repeatable=exist_ok)))
    except TopicExistsError:
        if not exist_ok:
            raise
    return (yield from topic_metadata(name))


def list_topics() -> Calls[list[Topic]]:
    """All topics, sorted by name. One request per page."""
    return [value_of(Topic, each) for each in (yield from all_pages("/v1/topics", "topics"))]


def describe_topic(name: str) -> Calls[TopicDescription]:
    """The topic and the offsets of its partitions."""
    answer = yield json_request("GET", topic_path(name))
    offsets = (value_of(PartitionOffsets, each) for each in answer["offsets"])
    return TopicDescription(topic=value_of(Topic, answer), offsets=tuple(offsets))


def topic_metadata(name: str) -> Calls[Topic]:
    """Partitions and settings without offsets: all that producing and consuming need, for one read."""
    return value_of(Topic, (yield json_request("GET", "/v1/metadata", {"topic": checked_topic(name)})))


def alter_topic(name: str, config: Mapping[str, Any]) -> Calls[Topic]:
    """Change settings of the topic."""
    check_mapping("config", config, _CONFIG_EXAMPLE)
    return (yield from _change_topic(name, {"config": dict(config)} if config else {}))


def add_partitions(name: str, partitions: int) -> Calls[Topic]:
    """Give the topic `partitions` in all, and not fewer than it has."""
    check_whole("partitions", partitions, 1)
    had = (yield from topic_metadata(name)).writable_partitions
    check(
        partitions >= had,
        f"partitions={partitions}: topic {name!r} has {had}, and add_partitions() only adds; set_partitions() takes "
        "fewer, too",
    )
    return (yield from _change_topic(name, {"partitions": partitions}))


def set_partitions(name: str, partitions: int) -> Calls[Topic]:
    """Let `partitions` of the topic be writable."""
    check_whole("partitions", partitions, 1)
    return (yield from _change_topic(name, {"partitions": partitions}))


def _change_topic(name: str, body: Mapping[str, Any]) -> Calls[Topic]:
    # A number of partitions is sent once: after another operator's change, a repeat would begin one more generation.
    is_repeatable = "partitions" not in body
    return value_of(Topic, (yield json_request("PATCH", topic_path(name), body=body, is_repeatable=is_repeatable)))


def delete_topic(name: str) -> Calls[None]:
    """Delete the topic. Not repeatable: a second delete could meet a new topic of the name."""
    yield json_request("DELETE", topic_path(name))


def truncate(name: str, before_offsets: Mapping[int, int]) -> Calls[dict[int, int]]:
    """Remove the records below an offset, by partition. Raises the first partition's error after all were tried."""
    check_numbers("before_offsets", before_offsets)
    body = {str(partition): offset for partition, offset in before_offsets.items()}
    answer = yield json_request("POST", f"{topic_path(name)}/truncate", body=body, is_repeatable=True)
    raise_first_error(answer["partitions"])
    return {each["partition"]: each["log_start_offset"] for each in answer["partitions"]}


def list_scheduled(name: str, partition: int | None = None) -> Calls[list[ScheduledRecords]]:
    """The delayed records of a topic that wait, by partition and due time. One request per page."""
    if partition is not None:
        check_whole("partition", partition, 0)
    query = {} if partition is None else {"partition": str(partition)}
    return [
        ScheduledRecords(**{each: found[each] for each in ScheduledRecords._fields})
        for found in (yield from all_pages(f"{topic_path(name)}/scheduled", "scheduled", query))
    ]


def cancel_scheduled(name: str, scheduled_id: str) -> Calls[ScheduledRecords]:
    """Cancel delayed records that wait."""
    check_text("scheduled_id", scheduled_id)
    path = f"{topic_path(name)}/scheduled/{quote(scheduled_id, safe='')}"
    found = yield json_request("DELETE", path, is_repeatable=True)
    return ScheduledRecords(**{each: found[each] for each in ScheduledRecords._fields})


# Offsets.


def list_offsets(
    name: str, timestamp: int | str, partition: int | None = None
) -> Calls[dict[int, OffsetAndTimestamp | None]]:
    """By partition. `timestamp_ms` is -1 for "earliest" and "latest"."""
    return {
        each["partition"]: _offset_and_timestamp(each) for each in (yield from _offset_list(name, timestamp, partition))
    }


class StartOffset(NamedTuple):
    """An offset to start at, and the id of the topic that it belongs to."""

    offset: int
    topic_id: str | None


def start_offsets(partitions: Iterable[TopicPartition], timestamp: str) -> Calls[dict[TopicPartition, StartOffset]]:
    """The earliest or latest offset of each partition: one call per topic."""
    found: dict[TopicPartition, StartOffset] = {}
    for topic, numbers in by_topic(partitions).items():
        for each in (yield from _offset_list(topic, timestamp, numbers[0] if len(numbers) == 1 else None)):
            if each["partition"] in numbers:
                start = StartOffset(each["offset"], each.get("topic_id"))
                found[TopicPartition(topic, each["partition"])] = start
    return found


def bounds_at_once(partitions: Iterable[TopicPartition]) -> Calls[dict[TopicPartition, dict[str, StartOffset]]]:
    """The earliest and the latest offset of partitions of many topics, by fetches beyond their ends.

    Costs a call for `REQUEST_PARTITIONS_MAX` partitions. It leaves out what it cannot tell: `start_offsets` knows why.
    """
    found: dict[TopicPartition, dict[str, StartOffset]] = {}
    asked = list(partitions)
    for start in range(0, len(asked), REQUEST_PARTITIONS_MAX):
        some = asked[start : start + REQUEST_PARTITIONS_MAX]
        wanted = [{"topic": each.topic, "partition": each.partition, "offset": OFFSET_MAX} for each in some]
        answer = yield json_request("POST", "/v1/fetch", body={"partitions": wanted}, accept=BATCHES_TYPE)
        for each, told in zip(some, answer["partitions"], strict=True):
            error = error_from_json(told.get("error", {}))
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and "topic_id" in error.facts:
                bounds = {"earliest": error.facts["log_start_offset"], "latest": error.facts["high_watermark"]}
                found[each] = {name: StartOffset(offset, error.facts["topic_id"]) for name, offset in bounds.items()}
    return found


def _offset_list(name: str, timestamp: int | str, partition: int | None) -> Calls[list[Mapping[str, Any]]]:
    check(
        isinstance(timestamp, str) or is_whole(timestamp),
        f"timestamp={timestamp!r:.100}: use 'earliest', 'latest', or milliseconds since 1970",
    )
    query = {"timestamp": str(timestamp)}
    if partition is not None:
        query["partition"] = str(partition)
    answer = yield json_request("GET", f"{topic_path(name)}/offsets", query)
    raise_first_error(answer["offsets"])
    listed: list[Mapping[str, Any]] = answer["offsets"]
    return listed


def listed_offsets(partitions: Iterable[TopicPartition], timestamp: str) -> Calls[dict[TopicPartition, int]]:
    """The earliest or latest offset of each partition: one call per topic."""
    found = yield from offsets_at(dict.fromkeys(checked_partitions(partitions), timestamp))
    return {partition: at.offset for partition, at in found.items() if at is not None}


def offsets_at(
    timestamps: Mapping[TopicPartition, int | str],
) -> Calls[dict[TopicPartition, OffsetAndTimestamp | None]]:
    """The first record at or after each partition's time: one call per topic and time."""
    check_mapping("timestamps", timestamps, "{TopicPartition('orders', 0): 1_760_000_000_000}")
    timestamps = {checked_partition("timestamps: partition", each): at for each, at in timestamps.items()}
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for timestamp in dict.fromkeys(timestamps.values()):
        asked = [partition for partition, each in timestamps.items() if each == timestamp]
        for topic, numbers in by_topic(asked).items():
            answer = yield from list_offsets(topic, timestamp, numbers[0] if len(numbers) == 1 else None)
            found |= {TopicPartition(topic, number): answer.get(number) for number in numbers}
    return found


def commit_offsets(
    group: str, offsets: Iterable[Mapping[str, Any]], **member: str
) -> Calls[dict[TopicPartition, PenstockError]]:
    """Commit offsets as the API takes them; the errors of the refused ones. One request per COMMIT_OFFSETS_MAX."""
    items = list(offsets)
    refused: dict[TopicPartition, PenstockError] = {}
    for start in range(0, len(items), COMMIT_OFFSETS_MAX):
        body = {**member, "offsets": items[start : start + COMMIT_OFFSETS_MAX]}
        answer = yield json_request("POST", f"{group_path(group)}/offsets", body=body, is_repeatable=True)
        for each in answer["results"]:
            if "error" in each:
                refused[TopicPartition(each["topic"], each["partition"])] = error_from_json(each["error"])
    return refused


def offset_item(partition: TopicPartition, offset: int, **fields: object) -> dict[str, Any]:
    """One offset for `commit_offsets`, with the further fields that are not None."""
    item = {"topic": checked_topic(partition.topic), "partition": partition.partition, "offset": offset}
    return item | {name: value for name, value in fields.items() if value is not None}


def seen_commit(error: PenstockError) -> dict[str, Any]:
    """The commit that an OFFSET_BEHIND names, as `back_from` of the commit that goes back from it."""
    return {"offset": error.facts["committed_offset"], "committed_at_ms": error.facts["committed_at_ms"]}


def committed_starts(group: str) -> Calls[dict[TopicPartition, StartOffset]]:
    """The offsets that the group has committed, by partition, each with its topic's id. One request per page."""
    found = yield from all_pages(f"{group_path(group)}/offsets", "offsets", {})
    return {
        TopicPartition(each["topic"], each["partition"]): StartOffset(each["offset"], each.get("topic_id"))
        for each in found
    }


def committed_offsets(group: str, topic: str | None = None) -> Calls[dict[TopicPartition, CommittedOffset]]:
    """The offsets that the group has committed, by partition. One request per page."""
    query = {} if topic is None else {"topic": checked_topic(topic)}
    found = yield from all_pages(f"{group_path(group)}/offsets", "offsets", query)
    return {
        TopicPartition(each["topic"], each["partition"]): value_of(CommittedOffset, {"metadata": "", **each})
        for each in found
    }


def group_offsets(group: str, topic: str | None) -> Calls[list[CommittedOffset]]:
    """The offsets that the group has committed, sorted by partition."""
    found = yield from committed_offsets(group, topic)
    return [found[partition] for partition in sorted(found)]


def commit_group_offsets(
    group: str, offsets: Mapping[TopicPartition, int], metadata: str, *, may_go_back: bool
) -> Calls[None]:
    """Commit offsets for a group, with the same metadata for all. Raises the first partition's error after all.

    With `may_go_back`, an offset below the group's commit takes a second request, which names that commit.
    """
    check_text("metadata", metadata)
    checked = checked_offsets("offsets", offsets)
    items = {each: offset_item(each, offset, metadata=metadata) for each, offset in checked.items()}
    refused = yield from commit_offsets(group, items.values())
    behind = {each: error for each, error in refused.items() if error.code is ErrorCode.OFFSET_BEHIND}
    if may_go_back and behind:
        again = [{**items[each], "back_from": seen_commit(error)} for each, error in behind.items()]
        refused = {each: error for each, error in refused.items() if each not in behind}
        refused |= yield from commit_offsets(group, again)
    for error in refused.values():
        raise error


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


# Transactional ids.


def release_transactional_id(transactional_id: str) -> Calls[None]:
    """Let the id belong to nobody."""
    name = checked_name(parse_transactional_id, transactional_id)
    yield json_request("POST", f"/v1/producers/{name}/release", is_repeatable=True)


# Zones.


def list_zones() -> Calls[list[Zone]]:
    """Every zone and its state."""
    return [value_of(Zone, each) for each in (yield json_request("GET", "/v1/zones"))["zones"]]


def move_zone(zone: str, state: str, reason: str) -> Calls[Zone]:
    """Move a zone to `state`."""
    check_text("zone", zone)
    check_text("reason", reason)
    body = {"state": state, "reason": reason}
    return value_of(
        Zone, (yield json_request("POST", f"/v1/zones/{quote(zone, safe='')}", body=body, is_repeatable=True))
    )


def all_pages(path: str, name: str, query: Mapping[str, str] | None = None) -> Calls[list[Mapping[str, Any]]]:
    """The items under `name` of all pages, as `pages` reads them."""
    return [each for page in (yield from pages(path, query)) for each in page[name]]


def pages(path: str, query: Mapping[str, str] | None = None) -> Calls[list[Mapping[str, Any]]]:
    """All pages of a list, `SDK_PAGES_MAX` at most. Raises UnavailableError if there are more."""
    asked = dict(query or {})
    found: list[Mapping[str, Any]] = []
    for _ in range(SDK_PAGES_MAX):
        found.append((yield json_request("GET", path, asked)))
        next_after = found[-1].get("next_after")
        if not next_after:
            return found
        asked = {**asked, "after": next_after}
    raise UnavailableError(ErrorCode.INTERNAL, f"GET {path} has more than {SDK_PAGES_MAX:,} pages: read it in parts")


def topic_path(name: str) -> str:
    """`/v1/topics/{name}`. Raises InvalidError for a bad name, which could be another path."""
    return f"/v1/topics/{checked_topic(name)}"


def group_path(name: str) -> str:
    """`/v1/groups/{name}`. Raises InvalidError for a bad name."""
    return f"/v1/groups/{checked_name(parse_group_name, name)}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def raise_first_error(results: Iterable[Mapping[str, Any]]) -> None:
    """Raise the error of the first result that has one."""
    for each in results:
        if "error" in each:
            raise error_from_json(each["error"])


def _offset_and_timestamp(each: Mapping[str, Any]) -> OffsetAndTimestamp | None:
    if each["offset"] is None:
        return None
    timestamp_ms = each.get("timestamp_ms")
    return OffsetAndTimestamp(each["offset"], -1 if timestamp_ms is None else timestamp_ms)
