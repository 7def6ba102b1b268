"""Find the partitions that a group must not read yet, and what holds them up (docs/protocol/partitions)."""

from collections.abc import Mapping, Sequence

from penstock_core.groups.group_target import TargetAssignment
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicName
from penstock_core.limits import SUBSCRIPTION_LOOK_UPS_MAX
from penstock_core.log.topic import Topic
from penstock_service.groups.readable_ends import readable_ends
from penstock_service.instance.instance import Instance


def waiting_partitions(
    instance: Instance, group: GroupName, target: TargetAssignment
) -> Mapping[PartitionKey, tuple[TopicName, Partition]]:
    """The partitions of the target's topics that wait, each with its topic and the partition that they wait for.

    That is the first one of an older generation that the group has not read to where it closed. A read of each topic
    that is not remembered, or one of the topics table; for topics with generations also what `readable_ends` costs.
    """
    turned = [topic for topic in _topics(instance, target) if len(topic.generations) > 1]
    reaches = readable_ends(instance, group, turned)
    return {
        PartitionKey(topic.topic_id, Partition(number)): (topic.name, Partition(holder))
        for topic in turned
        if (holder := reaches[topic.topic_id].holder) is not None
        for number in range(reaches[topic.topic_id].end, topic.partitions)
    }


def _topics(instance: Instance, target: TargetAssignment) -> Sequence[Topic]:
    """The topics of the target that still have their names."""
    ids = {topic.topic_id for topic in target.topics}
    if len(ids) > SUBSCRIPTION_LOOK_UPS_MAX:
        found: Sequence[Topic] = instance.stores.topics.list()
    else:
        found = instance.executor.map(instance.topic_cache.get, [topic.name for topic in target.topics]).ok
    return [topic for topic in found if topic.topic_id in ids]
