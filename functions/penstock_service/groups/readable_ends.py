"""Tell how far a group may read topics with generations: a generation waits for the ones before (docs/adr/0051).

A group has read a generation once, for each of its partitions, its committed offset or the log start is at the offset
where the partition was closed. Only timers deliver behind that offset, and their records have no order among others.
"""

from collections.abc import Collection, Mapping, Sequence

from penstock_core.groups.topic_reach import TopicReach, topic_reach
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicId
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance


def readable_ends(instance: Instance, group: GroupName, topics: Sequence[Topic]) -> Mapping[TopicId, TopicReach]:
    """How far the group may read each of the topics that has older generations.

    Costs nothing for topics with one generation. For the others it costs a read of the heads of older generations, and
    one of the group's leases there, for each 100 partitions.
    """
    turned = [topic for topic in topics if len(topic.generations) > 1]
    keys = [key for topic in turned for key in _older(topic)]
    if not keys:
        return {}
    heads = instance.stores.log.heads(keys)
    leases = instance.stores.groups.find_leases(group, keys)
    committed = {key: lease.offset for key, lease in leases.items() if lease.offset is not None}
    unread = {key for key in keys if not _is_read(heads.get(key), committed.get(key, 0))}
    return {topic.topic_id: topic_reach(topic, _numbers(topic, unread), _numbers(topic, committed)) for topic in turned}


def _older(topic: Topic) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, Partition(number)) for number in range(topic.first_writable)]


def _numbers(topic: Topic, keys: Collection[PartitionKey]) -> list[Partition]:
    return [key.partition for key in keys if key.topic_id == topic.topic_id]


def _is_read(head: Head | None, committed: int) -> bool:
    if head is None:
        return True  # the topic is being deleted
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return max(committed, head.log_start_offset) >= end
