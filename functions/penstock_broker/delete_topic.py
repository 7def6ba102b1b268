"""Delete a topic: its name first, then its partitions' heads, without which no append succeeds."""

from penstock_broker.broker import Broker
from penstock_core.errors import PenstockError
from penstock_core.keys import PartitionKey


def delete_topic(broker: Broker, name: str) -> None:
    """Once this returns, no append to the topic succeeds and its name is free.

    One transaction, then one delete per partition. The transaction leaves a note under the topic's id, by which the
    bytes and pages go later. Raises UNKNOWN_TOPIC, and CONCURRENT_UPDATE if partitions are being added; a storage error
    raised after the name went leaves heads that only instances which still remember the topic (10 s) could append to.
    """
    topic = broker.directory.look_up(name)
    broker.topics.delete(topic, broker.clock.now_ms())
    broker.directory.forget(name)
    keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
    for result in broker.parallel.map(broker.log.delete_head, keys):
        if isinstance(result, PenstockError):
            raise result
