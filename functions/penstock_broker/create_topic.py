"""Create a topic: its partitions' heads first, then its name, so that a topic that can be found can be written to.

A note is written before the heads; one transaction takes it away and puts the name. A creation that died leaves the
note, by which retention removes the heads, once it has made of it the note of a deleted topic, with which there can be
no such transaction any more. So no topic is ever visible without its heads, whatever clocks say.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_broker.broker import Broker
from penstock_broker.index_age import note_index_age
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TOPIC_ID_BYTES, Partition, new_topic_id, parse_topic_name
from penstock_core.items import note_of
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic, TopicConfig, alter_config, check_partitions, check_zones


def create_topic(broker: Broker, name: str, partitions: int, config: Mapping[str, Any]) -> Topic:
    """Two reads and a put, one put per partition, then one transaction that makes the topic visible.

    Raises INVALID_NAME, INVALID_REQUEST, INVALID_CONFIG, TOPIC_EXISTS, and CONCURRENT_UPDATE for a creation that
    outlasted retention's grace.
    """
    topic = Topic(
        name=parse_topic_name(name),
        topic_id=new_topic_id(broker.chance.random_bytes(TOPIC_ID_BYTES)),
        partitions=check_partitions(partitions),
        created_at_ms=broker.clock.now_ms(),
        config=alter_config(TopicConfig(), config),
    )
    check_zones(topic.config, len(broker.zones))
    if broker.topics.get(topic.name) is not None:
        raise PenstockError(ErrorCode.TOPIC_EXISTS, f"topic {name!r} exists already")
    note_index_age(broker, [topic])
    broker.topics.begin(note_of(topic, topic.created_at_ms, is_being_created=True))
    create_heads(broker, topic, topic.all_partitions())
    broker.topics.create(topic)
    broker.directory.forget(name)
    return topic


def create_heads(broker: Broker, topic: Topic, partitions: Iterable[Partition]) -> None:
    """Empty heads for the partitions that have none. Raises the first error."""
    keys = [PartitionKey(topic.topic_id, partition) for partition in partitions]
    for result in broker.parallel.map(broker.log.create_head, keys):
        if isinstance(result, PenstockError):
            raise result
