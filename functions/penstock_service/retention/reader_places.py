"""Readers and their places, for `retention=acknowledged` (docs/protocol/retention).

A reader announces each place that it gets, and each way back: it writes the place, then raises `reader_changes` of the
heads, and answers after that. Retention reads the heads, then the places, and raises a log start only while
`reader_changes` is as it was. So it either knows the place, or is refused, or the reader hears of the new log start.

| reader | its place | without one |
|---|---|---|
| a group with members, now or before | the committed offset | holds the partition, once it has a lease on the topic |
| a group that never had members | the committed offset | is no reader of the partition |
| a share group, a parallel subscription | the lowest unfinished offset | holds the partition |
| an ordered subscription, a mirror of the topic | the offset of its deliveries | holds the partition |
| the redrive of a dead-letter topic | the lowest letter that has not moved | holds the partition |
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import TypeVar

from penstock_core.ids import GroupName, Offset, PartitionKey, TopicId, TopicName
from penstock_core.limits import GROUP_LIST_MAX, PUSH_LIST_MAX, SHARE_GROUP_LIST_MAX
from penstock_core.log.topic import Topic
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.subscription import ORDERED, Subscription
from penstock_core.share.share_group import ShareGroup, is_deletion_note, redrive_name
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance

_BEGINNING = Offset(0)
_Named = TypeVar("_Named", ShareGroup, Subscription)


def keys_of(topic: Topic) -> list[PartitionKey]:
    """All partitions of the topic."""
    return [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]


@dataclass(frozen=True, slots=True)
class _Place:
    """`offset` is that of one reader in one partition."""

    key: PartitionKey
    offset: Offset


def lowest_places(instance: Instance, topics: Sequence[Topic]) -> Mapping[PartitionKey, Offset]:
    """The lowest place of a reader in each partition of these topics; a partition without a reader is missing.

    Costs the same for one topic and for all: one query for 100 groups, one read of these, and one query of each group's
    leases; one query for 100 share groups, hidden ones or subscriptions; one read for 100 partitions of each of those
    that read one of the topics. Raises what one of them raises: then the places are not known.
    """
    by_id = {topic.topic_id: topic for topic in topics}
    lowest: dict[PartitionKey, Offset] = {}
    for place in chain(_of_groups(instance, by_id), _of_share_groups(instance, by_id)):
        lowest[place.key] = min(place.offset, lowest.get(place.key, place.offset))
    return lowest


def _of_groups(instance: Instance, topics: Mapping[TopicId, Topic]) -> Iterator[_Place]:
    memberships = instance.stores.memberships
    after = ""
    while names := memberships.registered(after, GROUP_LIST_MAX):
        had_members = {name for name, group in memberships.find_groups(names).items() if group.epoch}
        leases_of = instance.executor.map(instance.stores.groups.leases, names).all_ok()
        for name, leases in zip(names, leases_of, strict=True):
            places = {each.partition: each.offset or _BEGINNING for each in leases if each.partition.topic_id in topics}
            yield from starmap(_Place, places.items())
            if name in had_members:
                yield from _held({key.topic_id for key in places}, topics, places)
        after = names[-1]


def _held(
    topic_ids: Iterable[TopicId], topics: Mapping[TopicId, Topic], known: Collection[PartitionKey]
) -> Iterator[_Place]:
    """The partitions of these topics where a reader has no place: it holds them."""
    for topic_id in topic_ids:
        if topic_id in topics:
            yield from (_Place(key, _BEGINNING) for key in keys_of(topics[topic_id]) if key not in known)


def _of_share_groups(instance: Instance, topics: Mapping[TopicId, Topic]) -> Iterator[_Place]:
    """Those of share groups, subscriptions, and redrives. A topic that takes dead letters is held until one began."""
    share, push = instance.stores.share, instance.stores.push
    letters: set[TopicName | None] = set()
    redriven: set[GroupName] = set()
    for group in chain(_all(share.list_groups, SHARE_GROUP_LIST_MAX), _all(share.hidden_groups, SHARE_GROUP_LIST_MAX)):
        if is_deletion_note(group):
            continue
        redriven.add(group.name)
        letters.add(group.config.dead_letter_topic)
        keys = [
            ShareKey(group.share_group_id, key.topic_id, key.partition)
            for topic_id in group.topics.values()
            if topic_id in topics
            for key in keys_of(topics[topic_id])
        ]
        states = share.find_states(keys) if keys else {}
        for key in keys:
            yield _Place(key.partition_key, states[key].start_offset if key in states else _BEGINNING)
    for subscription in _all(push.list_subscriptions, PUSH_LIST_MAX):
        letters.add(subscription.config.dead_letter_topic)
        if subscription.config.mode == ORDERED:
            yield from _of_deliveries(instance, subscription, topics)
    waiting = [each for each in topics.values() if each.name in letters and redrive_name(each.topic_id) not in redriven]
    yield from _held([each.topic_id for each in waiting], topics, ())


def _of_deliveries(instance: Instance, subscription: Subscription, topics: Mapping[TopicId, Topic]) -> Iterator[_Place]:
    keys = [
        DeliveryKey(subscription_id=subscription.subscription_id, topic_id=topic_id, partition=key.partition)
        for topic_id in subscription.topics.values()
        if topic_id in topics
        for key in keys_of(topics[topic_id])
    ]
    states = instance.stores.push.find_deliveries(keys) if keys else {}
    for key in keys:
        yield _Place(key.partition_key, states[key].offset if key in states else _BEGINNING)


def _all(read: Callable[[str, int], Sequence[_Named]], limit: int) -> Iterator[_Named]:
    after = ""
    while page := read(after, limit):
        yield from page
        after = page[-1].name
