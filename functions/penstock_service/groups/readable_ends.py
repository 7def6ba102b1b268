"""Tell how far a group may read topics with generations: a generation waits for the ones before (docs/adr/0051).

A group has read a generation once, for each of its partitions, its committed offset or the log start is at the offset
where the partition was closed. Only timers deliver behind that offset, and their records have no order among others.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock_core.ids import GroupName, Partition, PartitionKey, TopicId
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance


def readable_ends(instance: Instance, group: GroupName, topics: Sequence[Topic]) -> Mapping[TopicId, int]:
    """The first partition that the group must not read yet, for topics that have one.

    Costs nothing for topics with one generation. For the others it costs a read of the heads of older generations, and
    one of the group's leases there, for each 100 partitions.
    """
    older = {topic.topic_id: _older(topic) for topic in topics if len(topic.generations) > 1}
    keys = [key for each in older.values() for key in each]
    if not keys:
        return {}
    heads = instance.stores.log.heads(keys)
    leases = instance.stores.groups.find_leases(group, keys)
    committed = {key: lease.offset or 0 for key, lease in leases.items()}
    unread = {key for key in keys if not _is_read(heads.get(key), committed.get(key, 0))}
    ends = {topic.topic_id: _end(topic, unread) for topic in topics if topic.topic_id in older}
    return {topic_id: end for topic_id, end in ends.items() if end is not None}


def _older(topic: Topic) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, Partition(number)) for number in range(topic.first_writable)]


def _is_read(head: Head | None, committed: int) -> bool:
    if head is None:
        return True  # the topic is being deleted
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return max(committed, head.log_start_offset) >= end


def _end(topic: Topic, unread: set[PartitionKey]) -> int | None:
    """The end of the first generation with a partition that is unread, None if there is none."""
    for start, end in pairwise(topic.generations):
        if any(PartitionKey(topic.topic_id, Partition(number)) in unread for number in range(start, end)):
            return end
    return None
