"""Tell how far a group may read: a generation of partitions waits for the ones before (docs/protocol/partitions).

A group has read a generation once, for each of its partitions, its committed offset or the log start is at the offset
where the partition was closed. Only timers deliver behind that offset, and their records have no order among others.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock_core.groups.topic_patterns import TopicReach, topic_reach
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicId
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance

_NONE_KNOWN: Mapping[TopicId, int] = {}


def readable_ends(
    instance: Instance, group: GroupName, topics: Sequence[Topic], known: Mapping[TopicId, int] = _NONE_KNOWN
) -> Mapping[TopicId, TopicReach]:
    """How far the group may read each of the topics that has older generations.

    `known` has ends of topics up to which the group has read its way; a reset makes it unknown. There the reach is that
    end until the group has finished the generation before it.

    Costs nothing for topics with one generation. For the others it costs a read of the heads of older generations, and
    one of the group's leases there, for each 100 partitions. While a group waits at a known end, these are the heads
    and leases of the generation before it.
    """
    turned = [topic for topic in topics if len(topic.generations) > 1]
    starts = {
        topic.topic_id: max(each for each in topic.generations if each < known[topic.topic_id])
        for topic in turned
        if known.get(topic.topic_id, 0) in topic.generations[1:]
    }
    waiting = [topic for topic in turned if topic.topic_id in starts]
    keys = [key for topic in waiting for key in _keys(topic, starts[topic.topic_id], known[topic.topic_id])]
    found = _reaches(instance, group, waiting, keys)
    still = {topic_id: each for topic_id, each in found.items() if each.end == known[topic_id]}
    others = [topic for topic in turned if topic.topic_id not in still]
    keys = [key for topic in others for key in _keys(topic, 0, topic.first_writable)]
    return {**still, **_reaches(instance, group, others, keys)}


def _reaches(
    instance: Instance, group: GroupName, topics: Sequence[Topic], keys: Sequence[PartitionKey]
) -> Mapping[TopicId, TopicReach]:
    """The reaches by these partitions of older generations alone."""
    if not keys:
        return {}
    heads = instance.stores.log.heads(keys)
    leases = instance.stores.groups.find_leases(group, keys)
    committed = {key: lease.offset for key, lease in leases.items() if lease.offset is not None}
    unread = {key for key in keys if not _is_read(heads.get(key), committed.get(key, 0))}
    return {topic.topic_id: _reach(topic, heads, unread, committed) for topic in topics}


def _reach(
    topic: Topic, heads: Mapping[PartitionKey, Head], unread: Collection[PartitionKey], begun: Collection[PartitionKey]
) -> TopicReach:
    reach = topic_reach(topic, _numbers(topic, unread), _numbers(topic, begun))
    if reach.holder is None:
        return reach
    head = heads[PartitionKey(topic.topic_id, Partition(reach.holder))]
    return replace(reach, closed_ms=head.closed_ms or 0)


def _keys(topic: Topic, start: int, end: int) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, Partition(number)) for number in range(start, end)]


def _numbers(topic: Topic, keys: Collection[PartitionKey]) -> list[Partition]:
    return [key.partition for key in keys if key.topic_id == topic.topic_id]


def _is_read(head: Head | None, committed: int) -> bool:
    if head is None:
        return True  # the topic is being deleted
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return head.next_record(committed) >= end
