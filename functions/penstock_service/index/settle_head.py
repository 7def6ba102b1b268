"""Settle a head: close or open it as its topic's layout says (docs/adr/0046).

A change of the writable partitions is one conditional update of the topic, which raises its layout. The heads follow.
Each follows the newest layout that it has met, so a late update of an older layout changes nothing. A caller that dies
before a head has followed leaves the work to the next alteration, to retention, or to an append that was refused.
"""

from collections.abc import Iterable

from penstock_core.ids import Partition, PartitionKey
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance


def settle_head(instance: Instance, topic: Topic, partition: Partition) -> Head | None:
    """The head once it has followed the layout of `topic`, None if there is none. One conditional update."""
    closed_ms = None if topic.is_writable(partition) else instance.clock.now_ms()
    key = PartitionKey(topic.topic_id, partition)
    return instance.stores.log.move_to_layout(key, topic.layout, closed_ms)


def settle_heads(instance: Instance, topic: Topic, partitions: Iterable[Partition]) -> None:
    """Settles some heads of the topic. One conditional update for each. Raises the first error."""
    instance.executor.map(lambda partition: settle_head(instance, topic, partition), [*partitions]).all_ok()


def is_unsettled(topic: Topic, partition: Partition, head: Head) -> bool:
    """True if the head has not followed the layout of `topic` yet."""
    return head.layout < topic.layout and head.is_closed == topic.is_writable(partition)
