"""Every DynamoDB item, built and parsed here and nowhere else, in the low-level form (`{"N": "1"}`).

Attribute names are written out: a head with a full tail is about 1 KiB, and 2 KiB if it knows many producers.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_core import keys
from penstock_core.catch_up import CatchUpPass, Cursor, Progress
from penstock_core.ids import Offset, TopicId, TopicName, ZoneName
from penstock_core.index import Head, Page
from penstock_core.keys import PartitionKey
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_core.producer_state import ProducerState, decode_state, encode_state
from penstock_core.ref import decode_ref, decode_refs, encode_ref, encode_refs
from penstock_core.topic import Topic, TopicConfig, alter_config, config_to_json
from penstock_core.zone_state import ZoneState, ZoneStates, ZoneStatus

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """The note of a topic id that no name stands for: whose heads and pages may be removed.

    One that `is_being_created` since `deleted_at_ms` has heads that are being made, and may yet get its name."""

    topic_id: TopicId
    name: TopicName
    partitions: int
    deleted_at_ms: int
    is_being_created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group has committed for one partition: the offset it reads next."""

    topic: TopicName
    partition: PartitionKey
    offset: Offset
    metadata: str
    committed_at_ms: int


def head_key(key: PartitionKey) -> Item:
    return {"pk": {"S": str(key)}, "sk": {"S": keys.HEAD}}


def head_item(key: PartitionKey, head: Head) -> Item:
    """`under_replicated` is the bitmap of zones that had not confirmed the newest append when it was committed."""
    return {
        **head_key(key),
        "next_offset": number(head.next_offset),
        "log_start_offset": number(head.log_start_offset),
        "tail_base": number(head.tail_base),
        "tail": {"L": [{"B": encode_ref(ref)} for ref in head.tail]},
        "rolled_max_timestamp_ms": number(head.rolled_max_timestamp_ms),
        "rolled_bytes": number(head.rolled_bytes),
        "settling_offset": number(head.settling_offset),
        "settling_since_ms": number(head.settling_since_ms),
        "under_replicated": number(0),
        "producers": {
            "M": {
                keys.producer_name(producer_id): {"B": encode_state(state)}
                for producer_id, state in head.producers.items()
            }
        },
        "evictions": number(head.evictions),
    }


def parse_head(item: Mapping[str, Any]) -> Head:
    return Head(
        next_offset=Offset(int(item["next_offset"]["N"])),
        log_start_offset=Offset(int(item["log_start_offset"]["N"])),
        tail_base=Offset(int(item["tail_base"]["N"])),
        tail=tuple(decode_ref(element["B"]) for element in item["tail"]["L"]),
        rolled_max_timestamp_ms=int(item["rolled_max_timestamp_ms"]["N"]),
        rolled_bytes=int(item["rolled_bytes"]["N"]),
        settling_offset=Offset(int(item["settling_offset"]["N"])),
        settling_since_ms=int(item["settling_since_ms"]["N"]),
        producers={
            keys.parse_producer_name(name): decode_state(state["B"]) for name, state in item["producers"]["M"].items()
        },
        evictions=int(item["evictions"]["N"]),
    )


def parse_streamed_head(image: Mapping[str, Any]) -> tuple[PartitionKey, Head]:
    """A head as the table's stream hands its image to a function: as JSON, where binary is base64."""
    tail = [{"B": base64.b64decode(element["B"])} for element in image["tail"]["L"]]
    producers = {name: {"B": base64.b64decode(state["B"])} for name, state in image["producers"]["M"].items()}
    image = {**image, "tail": {"L": tail}, "producers": {"M": producers}}
    return keys.parse_partition_key(image["pk"]["S"]), parse_head(image)


def producer_item_key(key: PartitionKey, producer_id: int) -> Item:
    return {"pk": {"S": str(key)}, "sk": {"S": keys.producer_key(producer_id)}}


def producer_item(key: PartitionKey, producer_id: int, state: ProducerState) -> Item:
    """A producer that has left the head; DynamoDB removes it some time after `expires_at_s`."""
    return {
        **producer_item_key(key, producer_id),
        "state": {"B": encode_state(state)},
        "expires_at_s": number(state.written_s + PRODUCER_KEPT_MS // 1_000),
    }


def parse_producer(item: Mapping[str, Any]) -> ProducerState:
    return decode_state(item["state"]["B"])


def page_item_key(key: PartitionKey, end_offset: Offset) -> Item:
    return {"pk": {"S": str(key)}, "sk": {"S": keys.page_key(end_offset)}}


def page_item(key: PartitionKey, page: Page) -> Item:
    return {
        **page_item_key(key, page.end_offset),
        "base_offset": number(page.base_offset),
        "refs": {"B": encode_refs(page.refs)},
        "max_timestamp_ms": number(page.max_timestamp_ms),
        "rolled_bytes": number(page.rolled_bytes),
    }


def parse_page(item: Mapping[str, Any]) -> Page:
    return Page(
        base_offset=Offset(int(item["base_offset"]["N"])),
        refs=decode_refs(item["refs"]["B"]),
        max_timestamp_ms=int(item["max_timestamp_ms"]["N"]),
        rolled_bytes=int(item["rolled_bytes"]["N"]),
    )


def topic_key(name: TopicName) -> Item:
    return {"pk": {"S": name}, "sk": {"S": keys.TOPIC}}


def topic_item(topic: Topic) -> Item:
    """Only settings that differ from their default are stored, so that a default can change with the code."""
    defaults = config_to_json(TopicConfig())
    set_values = {name: value for name, value in config_to_json(topic.config).items() if value != defaults[name]}
    return {
        **topic_key(topic.name),
        "topic_id": {"S": topic.topic_id},
        "partitions": number(topic.partitions),
        "created_at_ms": number(topic.created_at_ms),
        "config": {"M": {name: _setting(value) for name, value in set_values.items()}},
    }


def parse_topic(item: Mapping[str, Any]) -> Topic:
    config = {name: value.get("S") or int(value["N"]) for name, value in item["config"]["M"].items()}
    return Topic(
        name=TopicName(item["pk"]["S"]),
        topic_id=TopicId(item["topic_id"]["S"]),
        partitions=int(item["partitions"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        config=alter_config(TopicConfig(), config),
    )


def note_of(topic: Topic, now_ms: int, *, is_being_created: bool = False) -> DeletedTopic:
    """The note of a topic that is deleted or created now."""
    return DeletedTopic(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=topic.partitions,
        deleted_at_ms=now_ms,
        is_being_created=is_being_created,
    )


def deleted_topic_item(note: DeletedTopic) -> Item:
    """Names the data that a deleted topic left behind, for the job that removes it."""
    item = {
        **deleted_topic_key(note.topic_id),
        "name": {"S": note.name},
        "partitions": number(note.partitions),
        "deleted_at_ms": number(note.deleted_at_ms),
    }
    return item | {"is_being_created": {"BOOL": True}} if note.is_being_created else item


def zone_states_key() -> Item:
    return {"pk": {"S": keys.ZONES}, "sk": {"S": keys.ZONE_STATES}}


def zone_states_item(states: ZoneStates) -> Item:
    return {
        **zone_states_key(),
        "version": number(states.version),
        "zones": {
            "M": {
                zone: {
                    "M": {
                        "status": {"S": state.status.value},
                        "version": number(state.version),
                        "since_ms": number(state.since_ms),
                        "reason": {"S": state.reason},
                    }
                }
                for zone, state in states.by_zone.items()
            }
        },
    }


def parse_zone_states(item: Mapping[str, Any]) -> ZoneStates:
    return ZoneStates(
        version=int(item["version"]["N"]),
        by_zone={
            ZoneName(zone): ZoneState(
                status=ZoneStatus(state["M"]["status"]["S"]),
                version=int(state["M"]["version"]["N"]),
                since_ms=int(state["M"]["since_ms"]["N"]),
                reason=state["M"]["reason"]["S"],
            )
            for zone, state in item["zones"]["M"].items()
        },
    )


def catch_up_pass_key() -> Item:
    return {"pk": {"S": keys.ZONES}, "sk": {"S": keys.CATCH_UP}}


def catch_up_pass_item(current: CatchUpPass) -> Item:
    """`zones` maps each zone that catches up to the version of its state; the cursor is where the pass goes on."""
    cursor, done = current.cursor, current.progress
    return {
        **catch_up_pass_key(),
        "saves": number(current.saves),
        "began_ms": number(current.began_ms),
        "zones": {"M": {zone: number(version) for zone, version in current.zones.items()}},
        "cursor": {"L": [{"S": cursor.topic}, number(cursor.partition), number(cursor.offset)]},
        "refs": number(done.refs),
        "segments": number(done.segments),
        "bytes": number(done.bytes),
        "failures": number(done.failures),
        "lost": number(done.lost),
    }


def parse_catch_up_pass(item: Mapping[str, Any]) -> CatchUpPass:
    topic, partition, offset = item["cursor"]["L"]
    return CatchUpPass(
        zones={ZoneName(zone): int(version["N"]) for zone, version in item["zones"]["M"].items()},
        began_ms=int(item["began_ms"]["N"]),
        saves=int(item["saves"]["N"]),
        cursor=Cursor(topic["S"], int(partition["N"]), int(offset["N"])),
        progress=Progress(
            refs=int(item["refs"]["N"]),
            segments=int(item["segments"]["N"]),
            bytes=int(item["bytes"]["N"]),
            failures=int(item["failures"]["N"]),
            lost=int(item["lost"]["N"]) if "lost" in item else 0,  # a pass that an older version has begun
        ),
    )


def deleted_topic_key(topic_id: TopicId) -> Item:
    return {"pk": {"S": keys.DELETED}, "sk": {"S": topic_id}}


def parse_deleted_topic(item: Mapping[str, Any]) -> DeletedTopic:
    return DeletedTopic(
        topic_id=TopicId(item["sk"]["S"]),
        name=TopicName(item["name"]["S"]),
        partitions=int(item["partitions"]["N"]),
        deleted_at_ms=int(item["deleted_at_ms"]["N"]),
        is_being_created="is_being_created" in item,
    )


def cursor_key(job: str) -> Item:
    return {"pk": {"S": keys.CURSORS}, "sk": {"S": job}}


def cursor_item(job: str, cursor: str) -> Item:
    """Where a scheduled job goes on that did not finish in its time."""
    return {**cursor_key(job), "cursor": {"S": cursor}}


def lease_item_key(group: str, key: PartitionKey) -> Item:
    return {"pk": {"S": group}, "sk": {"S": keys.lease_key(key)}}


def _setting(value: int | str) -> dict[str, str]:
    return {"S": value} if isinstance(value, str) else number(value)


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}
