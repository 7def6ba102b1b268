"""Create a topic: its partitions' heads first, then its name, so that a topic that can be found can be written to."""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TOPIC_ID_BYTES, Partition, new_topic_id, parse_topic_name
from penstock_core.keys import PartitionKey
from penstock_core.topic import Topic, TopicConfig, alter_config, check_partitions, check_zones


def create_topic(broker: Broker, name: str, partitions: int, config: Mapping[str, Any]) -> Topic:
    """One put per partition, then one conditional put that makes the topic visible.

    A crash before the last leaves empty heads under an id that nothing names. Raises INVALID_NAME, INVALID_REQUEST,
    INVALID_CONFIG, TOPIC_EXISTS.
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
