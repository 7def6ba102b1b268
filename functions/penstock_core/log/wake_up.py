"""Wake-ups: what tells a waiting reader that its partition has grown, and the channels that carry it (docs/adr/0025).

```
channel                       event, JSON text
/wake/<topic id>/<partition>  {"topic_id": "…", "partition": 3, "next_offset": 1207}
/wake/<topic id>/all          {"topic_id": "…", "partitions": {"3": 1207, "4": null}}
```
An offset is null where the writer does not know it: its append may have been applied. A wake-up holds ids and offsets,
and no data. It may be lost, late or doubled: a reader that gets one fetches, and reads the truth from the head.

A write that took the push waiter out of a head, as the log table's stream tells of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey, TopicId
from penstock_core.limits import WAKE_UP_PARTITIONS_MAX

NAMESPACE = "wake"
_ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """The partition may have grown to `next_offset`, None if the writer does not know how far."""

    key: PartitionKey
    next_offset: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpMessage:
    """One event and the channel that it goes to."""

    channel: str
    event: str


def messages(wake_ups: Iterable[WakeUp]) -> Sequence[WakeUpMessage]:
    """The messages for these wake-ups, one for each partition, topic by topic.

    More than `WAKE_UP_PARTITIONS_MAX` partitions of one topic share a message on the channel of the whole topic.
    """
    topics: dict[TopicId, list[WakeUp]] = {}
    for each in wake_ups:
        topics.setdefault(each.key.topic_id, []).append(each)
    return [
        message
        for topic_id, of_topic in topics.items()
        for message in (
            [_shared(topic_id, of_topic)] if len(of_topic) > WAKE_UP_PARTITIONS_MAX else map(_single, of_topic)
        )
    ]


def partition_channel(key: PartitionKey) -> str:
    """The channel of one partition."""
    return f"/{NAMESPACE}/{key.topic_id}/{key.partition}"


def topic_channel(topic_id: TopicId) -> str:
    """The channel for messages about many partitions of the topic."""
    return f"/{NAMESPACE}/{topic_id}/{_ALL}"


def _single(wake_up: WakeUp) -> WakeUpMessage:
    key = wake_up.key
    event = {"topic_id": key.topic_id, "partition": key.partition, "next_offset": wake_up.next_offset}
    return WakeUpMessage(channel=partition_channel(key), event=_text(event))


def _shared(topic_id: TopicId, wake_ups: Sequence[WakeUp]) -> WakeUpMessage:
    partitions = {str(each.key.partition): each.next_offset for each in wake_ups}
    event = {"topic_id": topic_id, "partitions": partitions}
    return WakeUpMessage(channel=topic_channel(topic_id), event=_text(event))


def _text(event: Mapping[str, object]) -> str:
    return json.dumps(event, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    """The partition has got records, and subscriptions wait for them. `next_offset` is the one after the write."""

    key: PartitionKey
    next_offset: Offset
