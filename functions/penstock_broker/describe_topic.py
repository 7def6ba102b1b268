"""Describe and list topics."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_core.ids import Offset, Partition
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The bounds of one partition: it holds `[log_start_offset, high_watermark)`."""

    partition: Partition
    log_start_offset: Offset
    high_watermark: Offset


def describe_topic(broker: Broker, name: str) -> tuple[Topic, Sequence[PartitionOffsets]]:
    """The topic as stored and its partitions' bounds. One read, and one for each 100 partitions. UNKNOWN_TOPIC."""
    topic = broker.directory.look_up(name)
    keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
    heads = broker.log.heads(keys)
    return topic, [
        PartitionOffsets(
            partition=key.partition,
            log_start_offset=heads[key].log_start_offset,
            high_watermark=heads[key].high_watermark,
        )
        for key in keys
        if key in heads
    ]


def list_topics(broker: Broker, limit: int, after: str) -> tuple[Sequence[Topic], str | None]:
    """Up to `limit` topics by name behind `after`, and where the next page starts, or None. Reads the topics table."""
    behind = [topic for topic in broker.topics.list() if topic.name > after]
    page = behind[:limit]
    return page, page[-1].name if len(behind) > limit else None
