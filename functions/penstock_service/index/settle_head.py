"""Settle a head: close or open it as its topic's layout says (docs/adr/0046).

A change of the writable partitions is one conditional update of the topic, which raises its layout. The heads follow.
Each follows the newest layout that it has met, so a late update of an older layout changes nothing. A caller that dies
before a head has followed leaves the work to the next alteration, to retention, or to an append that was refused.
"""

from collections.abc import Iterable

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.index import Head, partition_closed
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance


def settle_head(instance: Instance, topic: Topic, partition: Partition) -> Head | None:
    """The head once it has followed the layout of `topic`, None if there is none. One conditional update."""
    closed_ms = instance.clock.now_ms() if partition >= topic.writable_partitions else None
    key = PartitionKey(topic.topic_id, partition)
    return instance.stores.log.move_to_layout(key, topic.layout, closed_ms)


def settle_heads(instance: Instance, topic: Topic, partitions: Iterable[Partition]) -> None:
    """Settles some heads of the topic. One conditional update for each. Raises the first error."""
    instance.executor.map(lambda partition: settle_head(instance, topic, partition), [*partitions]).all_ok()


def is_unsettled(topic: Topic, partition: Partition, head: Head) -> bool:
    """True if the head has not followed the layout of `topic` yet."""
    return head.layout < topic.layout and head.is_closed != (partition >= topic.writable_partitions)


def still_closed(instance: Instance, topic_name: str, key: PartitionKey) -> PenstockError | None:
    """None if a partition that refused an append may take it now; else the error, with what its topic has.

    Its topic has opened it since, or an alteration died before it could open the head. One read of the topic, and one
    update then.
    """
    topic = instance.topic_cache.read_through(topic_name)
    if topic.topic_id != key.topic_id:
        return partition_closed(key)
    if key.partition >= topic.writable_partitions:
        return partition_closed(key, topic.writable_partitions)
    head = settle_head(instance, topic, key.partition)
    return None if head is not None and not head.is_closed else partition_closed(key)
