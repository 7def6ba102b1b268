"""The partitions of a share group, and its states in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicName
from penstock_core.limits import SHARE_LEFT_TOPICS_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.share.held_back import NOTHING_HELD, HeldBack
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.instance.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """A partition as the look found it. `state` is None if the group has never handed out a record of it.

    `held` is what older generations of the topic hold back of it.
    """

    topic: TopicName
    key: ShareKey
    head: Head
    state: ShareState | None
    held: HeldBack = NOTHING_HELD


def partitions_of(instance: Instance, group: ShareGroup) -> list[tuple[TopicName, ShareKey]]:
    """All partitions by topic and number. A topic that was deleted, or made anew since, has none.

    One read for each topic that is not remembered.
    """
    return _keys(instance, group, Topic.all_partitions)


def states_that_may_be(instance: Instance, group: ShareGroup) -> list[tuple[TopicName, ShareKey]]:
    """As `partitions_of`, and the partitions that went: the group's states in them are still there."""
    return _keys(instance, group, Topic.all_heads)


def _keys(
    instance: Instance, group: ShareGroup, numbers: Callable[[Topic], Sequence[Partition]]
) -> list[tuple[TopicName, ShareKey]]:
    found = []
    for name, topic_id in sorted(group.topics.items()):
        topic = instance.topic_cache.find(name)
        if topic is not None and topic.topic_id == topic_id:
            found += [(name, ShareKey(group.share_group_id, topic_id, number)) for number in numbers(topic)]
    return found


def succeeding(group: ShareGroup, old: ShareGroup) -> ShareGroup:
    """The group in place of `old`, with a note of the topics that it has left: it has states there.

    Raises INVALID_CONFIG for more than `SHARE_LEFT_TOPICS_MAX` notes.
    """
    group = group.succeeding(old)
    if len(group.left_topics) > SHARE_LEFT_TOPICS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{group.name!r} has left {len(group.left_topics)} topics: {SHARE_LEFT_TOPICS_MAX} at most. Make a new one",
            limit=SHARE_LEFT_TOPICS_MAX,
        )
    return group


def states_of(instance: Instance, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
    """The states of these partitions, without those that have none. One read for each 100."""
    return instance.stores.share.find_states(keys) if keys else {}
