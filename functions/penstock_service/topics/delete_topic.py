"""Delete a topic: its name first, then its partitions' heads. No append succeeds without a head."""

from contextlib import suppress

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey, TopicId, parse_own_topic_name
from penstock_service.instance.instance import Instance


def delete_topic(instance: Instance, name: str) -> TopicId:
    """The id of the topic. Once this returns, no append to the topic succeeds and its name is free.

    One read, one transaction, one delete per partition, and one update. The transaction leaves a note under the topic's
    id, so that retention finds the pages and bytes to delete. Raises INVALID_NAME for a topic of the service,
    UNKNOWN_TOPIC, and CONCURRENT_UPDATE if partitions are being added. A storage error after the transaction leaves
    heads behind. Only instances that still remember the topic (10 s) can append to them.
    """
    topic = instance.topic_cache.read_through(parse_own_topic_name(name))
    instance.stores.topics.delete(topic, instance.clock.now_ms())
    instance.topic_cache.forget(name)
    keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
    instance.executor.map(instance.stores.log.delete_head, keys).all_ok()
    with suppress(PenstockError):  # retention does it later
        instance.stores.topics.note_heads_removed(topic.topic_id, instance.clock.now_ms())
    return topic.topic_id
