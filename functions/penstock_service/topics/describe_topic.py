"""Describe and list topics, and count who uses one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock_core.ids import Offset, Partition, PartitionKey, is_reserved
from penstock_core.limits import PUSH_LIST_MAX, SHARE_GROUP_LIST_MAX
from penstock_core.log.topic import Topic
from penstock_core.pages import show_all
from penstock_core.push.targets.target import TopicTarget
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.ports.topics import TopicStore


class PartitionState(Enum):
    """What a partition does. One that is gone is in no description."""

    ACTIVE = "active"  # takes new records
    DRAINING = "draining"  # takes none, until it opens again or goes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The bounds of one partition, which holds `[log_start_offset, high_watermark)`, and its state.

    `stored_bytes` is what its head knows of the bytes there (`Head.stored_bytes`). `promoted_at` is where the log ended
    as a mirror, None if it was none.
    """

    partition: Partition
    log_start_offset: Offset
    high_watermark: Offset
    state: PartitionState
    stored_bytes: int
    promoted_at: Offset | None = None


def describe_topic(topic_cache: TopicCache, log: LogIndex, name: str) -> tuple[Topic, Sequence[PartitionOffsets]]:
    """The topic as stored and its partitions' bounds. One read, and one for each 100 partitions.

    Leaves out partitions that have no head, as those of a topic that is being deleted. Raises UNKNOWN_TOPIC.
    """
    topic = topic_cache.read_through(name)
    keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
    heads = log.heads(keys)
    return topic, [
        PartitionOffsets(
            partition=key.partition,
            log_start_offset=heads[key].log_start_offset,
            high_watermark=heads[key].high_watermark,
            state=PartitionState.ACTIVE if topic.is_writable(key.partition) else PartitionState.DRAINING,
            stored_bytes=heads[key].stored_bytes,
            promoted_at=heads[key].promoted_at,
        )
        for key in keys
        if key in heads
    ]


def list_topics(
    topics: TopicStore, limit: int, after: str, is_shown: Callable[[str], bool] = show_all
) -> tuple[Sequence[Topic], str | None]:
    """Up to `limit` topics whose names sort after `after`, by name, and the `after` of the next page, or None.

    Leaves out the topics of the service and those that are not shown. Reads the whole topics table.
    """
    page, has_more = topics.page(after, limit, lambda name: not is_reserved(name) and is_shown(name))
    return page, page[-1].name if has_more else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCounts:
    """The numbers of share groups and subscriptions that read a topic, write to it, or send dead letters there."""

    share_groups: int
    subscriptions: int


def count_users(instance: Instance, name: str) -> UserCounts:
    """All users of the topic, whoever may see them: only their numbers are told.

    One read, and one query for each page of share groups and subscriptions. Raises UNKNOWN_TOPIC.
    """
    topic = instance.topic_cache.read_through(name).name
    share_groups = subscriptions = 0
    after = ""
    while groups := instance.stores.share.list_groups(after, SHARE_GROUP_LIST_MAX):
        share_groups += sum(topic in group.topics or topic == group.config.dead_letter_topic for group in groups)
        after = groups[-1].name
    after = ""
    while page := instance.stores.push.list_subscriptions(after, PUSH_LIST_MAX):
        subscriptions += sum(
            topic in each.topics
            or topic == each.config.dead_letter_topic
            or (isinstance(each.target, TopicTarget) and topic == each.target.topic)
            for each in page
        )
        after = page[-1].name
    return UserCounts(share_groups=share_groups, subscriptions=subscriptions)
