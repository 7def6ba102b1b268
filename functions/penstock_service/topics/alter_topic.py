"""Alter a topic: change its settings, or the number of its writable partitions (docs/protocol/partitions).

```
 more    create heads that are missing ▶ the topic, under its next layout ▶ open heads that were closed
 fewer                                   the topic, under its next layout ▶ close heads
 either, with ordering_on_change=wait    the topic, under its next layout ▶ open_generation.py
```
A crash before the topic leaves empty heads. The next increase takes them, or retention removes them after a deletion. A
crash after it leaves heads that have not followed: settle_head.py tells who settles them.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId, parse_own_topic_name
from penstock_core.limits import TOPIC_PARTITIONS_MAX
from penstock_core.log.index import Head
from penstock_core.log.retention_raise import with_config
from penstock_core.log.topic import (
    WAIT,
    Topic,
    alter_config,
    check_compaction,
    check_not_mirrored,
    check_own,
    check_partitions,
    check_zones,
)
from penstock_core.outcomes import Outcomes, errors_maybe_applied
from penstock_service.index.heads import create_heads, open_generation, settle_heads
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.topics.create_topic import claim_partitions
from penstock_service.topics.listing_groups import check_listing_groups

_WITH_COMPACTION = frozenset(("ordering_on_change", "cleanup_policy", "retention"))


def alter_topic(
    instance: Instance, name: str, partitions: int | None, config: Mapping[str, Any], principal: str = ""
) -> Topic:
    """As `alter_any_topic`, but for names that are the service's own: these are INVALID_NAME."""
    return alter_any_topic(instance, parse_own_topic_name(name), partitions, config, principal)


def alter_any_topic(
    instance: Instance, name: str, partitions: int | None, config: Mapping[str, Any], principal: str = ""
) -> Topic:
    """The altered topic. Other instances notice within 10 s; a closed head refuses appends at once.

    `partitions` is the new number of writable partitions, None to keep it. With fewer, the others drain: they keep
    their records and take no new ones. With more, draining partitions open again, and their offsets go on. A setting of
    None in `config` goes back to its default.

    With `ordering_on_change=wait` another number begins a generation: all partitions drain, and new ones take the
    records. An earlier alteration that has not ended is ended first.

    More partitions cost a query of the share groups. One put for each new head, one conditional update of the topic,
    one for each head that closes or opens. Raises UNKNOWN_TOPIC, INVALID_CONFIG, also for partitions that a share group
    with topic_order=listed cannot read, QUOTA_EXCEEDED if the principal may have no more partitions, INVALID_REQUEST
    for a number that no topic may have, and CONCURRENT_UPDATE if another call altered the topic meanwhile. After
    another error the call may have been applied: make it again.
    """
    window = UpdateWindow.open(instance.clock)
    old = open_generation(instance, name)
    new = with_config(old, alter_config(old.config, config), instance.clock.now_ms())
    check_zones(new.config, len(instance.stores.zones))
    if partitions is not None:
        new = _with_partitions(new, check_partitions(partitions))
        check_listing_groups(instance, old, new)
    if partitions is not None or not _WITH_COMPACTION.isdisjoint(config):
        check_compaction(new.config, len(new.generations))
    claim_partitions(instance, window, principal, old, new)
    added = map(Partition, range(old.head_count, new.head_count))
    # No delivery has been at the new partitions yet. So their heads begin with the push waiter of subscriptions.
    create_heads(instance, window, new, added, has_push_waiter=True)
    window.check()
    instance.stores.topics.replace(old, new)
    instance.topic_cache.forget(name)
    if partitions is not None:
        with errors_maybe_applied():
            settle_heads(instance, new, _to_settle(old, new))
            return new if new.opening is None else open_generation(instance, name)
    return new


def _with_partitions(topic: Topic, partitions: int) -> Topic:
    """The topic with so many writable partitions: in its generation, or before the opening of another one."""
    if topic.config.ordering_on_change != WAIT:
        return _checked_end(topic.with_writable(partitions))
    opening = topic.with_opening(partitions)
    _checked_end(opening.with_next_generation())
    return opening


def _checked_end(topic: Topic) -> Topic:
    """The topic. Raises INVALID_REQUEST if its partitions' numbers go beyond those that a topic may have."""
    if topic.head_count > TOPIC_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r} would have partitions up to {topic.head_count - 1}: a topic has "
            f"{TOPIC_PARTITIONS_MAX} at most, with those of older generations; create another topic",
        )
    return topic


def _to_settle(old: Topic, new: Topic) -> list[Partition]:
    """The partitions whose heads may not be as `new` wants them.

    The same number again settles all: an earlier alteration may have died. Before the first decrease no head was ever
    closed. After one, the head of a partition that went may be there, and closed.
    """
    if new.opening is not None or (not old.layout and new.writable is None):
        return []
    if old.layout == new.layout:
        return list(new.all_partitions())
    ends = sorted((old.writable_end, new.writable_end))
    return list(map(Partition, range(*ends)))


def delete_topic(instance: Instance, name: str) -> TopicId:
    """The id of the topic. Once this returns, no append to the topic succeeds and its name is free.

    One read, one transaction, one delete per partition, and one update. The transaction leaves a note under the topic's
    id, so that retention finds the pages and bytes to delete. Raises INVALID_NAME for a topic of the service,
    UNKNOWN_TOPIC, and CONCURRENT_UPDATE if partitions are being added. A storage error after the transaction leaves
    heads behind. Only instances that still remember the topic (10 s) can append to them.
    """
    topic = check_not_mirrored(instance.topic_cache.read_through(parse_own_topic_name(name)))
    return remove_topic(instance, topic)


def remove_topic(instance: Instance, topic: Topic) -> TopicId:
    """As `delete_topic`, for a topic that was read just now, mirrored or not."""
    name = topic.name
    instance.stores.topics.delete(topic, instance.clock.now_ms())
    instance.topic_cache.forget(name)
    keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
    with errors_maybe_applied():  # the topic is gone
        instance.executor.map(instance.stores.log.delete_head, keys).all_ok()
    with suppress(PenstockError):  # retention does it later
        instance.stores.topics.note_heads_removed(topic.topic_id, instance.clock.now_ms())
    return topic.topic_id


def truncate(instance: Instance, topic_name: str, before: Mapping[int, int]) -> Outcomes[Head]:
    """One result per partition of `before` (partition -> the first offset that stays), in its order.

    One read, and one conditional update for each partition. An offset below the log start changes nothing. An offset
    above the high watermark is OFFSET_OUT_OF_RANGE. Raises INVALID_NAME, also for a topic
    of the service, and UNKNOWN_TOPIC.
    """
    check_own(instance.topic_cache.read_through(parse_own_topic_name(topic_name)))

    def raise_one(item: tuple[int, int]) -> Head:
        partition, offset = item
        _, key = instance.topic_cache.get_partition(topic_name, partition)
        return instance.stores.log.raise_log_start(key, Offset(offset))

    return instance.executor.map(raise_one, list(before.items()))
