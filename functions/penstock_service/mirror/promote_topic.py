"""Promote a mirrored topic: it takes appends of its own from now on. Or remove it, so that its mirror begins anew.

```
 1  the topic: its note says that the promotion is decided, so nobody refuses its move any more
 2  each head: the mirror's name goes, so no push is appended any more; the head follows the topic's layout
 3  the topic: its note of the mirror goes, so it may be altered and deleted as any other
```
A planned promotion, after a move (move_topic.py), takes only heads that end where the source's do, and ends once all
do. A call that died leaves some heads promoted, and the next one goes on. Between the steps pushes to the other heads
are still appended: each head's log is a prefix of its source's, whatever the others have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId, parse_own_topic_name
from penstock_core.limits import BATCH_GET_KEYS_MAX, OPEN_ATTEMPTS_MAX
from penstock_core.log.index import Head
from penstock_core.log.retention import written_ms
from penstock_core.log.topic import Topic
from penstock_core.mirror.group_offsets import NO_OFFSETS, MirroredOffsets
from penstock_core.mirror.push import UNPLANNED, LogEnd, PlannedPromotion, decide, refuse
from penstock_core.outcomes import errors_maybe_applied
from penstock_service.index.reader import ref_at
from penstock_service.instance.instance import Instance
from penstock_service.mirror.append_push import check_mirrors, follow
from penstock_service.topics.alter_topic import remove_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedPartition:
    """The end of a mirrored log, and the append time of its newest records at the source, None for an empty one."""

    partition: Partition
    promoted_at: Offset
    appended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedTopic:
    """The partitions that take appends, by number. The topic `is_whole` if all do: else the promotion must be repeated.

    Only a planned one may have to. `offsets` are those that groups had committed at the source, as it told last, none
    beyond the end of its partition. No group here has them yet.
    """

    partitions: list[PromotedPartition]
    offsets: MirroredOffsets = NO_OFFSETS
    is_whole: bool = True


def promote_topic(
    instance: Instance, name: str, planned: PlannedPromotion | None = None, *, is_dry_run: bool = False
) -> PromotedTopic:
    """The partitions of the topic, once they take appends. A dry run only reads, and tells where they end now.

    Three reads, one update for each head, two of the topic, and a query for a partition whose tail is empty. A repeat
    answers as the first call. Raises INVALID_NAME, UNKNOWN_TOPIC, INVALID_REQUEST for a topic that was never mirrored,
    and CONCURRENT_UPDATE if pushes keep changing its settings, or the move was given up. A planned one raises
    TOPIC_EXISTS for a topic that was made anew, or mirrors another one.
    """
    for attempt in range(OPEN_ATTEMPTS_MAX):
        if is_dry_run:
            topic = instance.topic_cache.read_through(parse_own_topic_name(name))
            if topic.mirror is not None:
                heads = _heads(instance, topic)
                ends = {key: replace(head, promoted_at=head.next_offset) for key, head in heads.items() if head.mirror}
                return replace(_promoted(instance, topic, heads | ends), is_whole=False)
            break
        with errors_maybe_applied(has_begun=attempt > 0):
            topic = _decided(instance, name, planned)
        if topic.mirror is None:
            break
        with errors_maybe_applied():
            heads = _promote_heads(instance, topic, topic.mirror.name, {} if planned is None else planned.ends)
            is_whole = planned is None or planned.ends.keys() <= {key.partition for key in heads}
            if not is_whole or any(head.mirror for head in heads.values()):
                return PromotedTopic(partitions=_told(instance, heads), is_whole=False)
            if _replaced(instance, topic, replace(topic, mirror=None)):
                return _promoted(instance, topic, heads)
    with errors_maybe_applied(has_begun=not is_dry_run):
        if topic.mirror is not None:
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by pushes all the time: promote it again"
            )
        found = _heads(instance, topic)
        if all(head.promoted_at is None for head in found.values()):
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is no mirror: it takes appends already")
        return _promoted(instance, topic, found)


def _promoted(instance: Instance, topic: Topic, heads: dict[PartitionKey, Head]) -> PromotedTopic:
    partitions = _told(instance, heads)
    offsets = instance.stores.log.find_offsets(topic.topic_id) or NO_OFFSETS
    return PromotedTopic(
        partitions=partitions, offsets=offsets.below({each.partition: each.promoted_at for each in partitions})
    )


def refuse_move(instance: Instance, name: str, number: int) -> None:
    """Lets the move of this number promote nothing, so that its source may take appends again. It may be repeated.

    One read, and one update of the topic. Raises MIRROR_ENDED once a promotion is decided, UNKNOWN_TOPIC, and
    CONCURRENT_UPDATE if pushes keep changing its settings.
    """
    for attempt in range(OPEN_ATTEMPTS_MAX):
        with errors_maybe_applied(has_begun=attempt > 0):
            topic = instance.topic_cache.read_through(parse_own_topic_name(name))
        refused = refuse(topic.mirror, number)
        assert topic.mirror is not None
        if refused == topic.mirror.refused or _replaced(
            instance, topic, replace(topic, mirror=replace(topic.mirror, refused=refused))
        ):
            return
    raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by pushes all the time: try again")


def _decided(instance: Instance, name: str, planned: PlannedPromotion | None) -> Topic:
    """The topic, whose note says that its promotion is decided. With the source's settings, if it is planned."""
    for attempt in range(OPEN_ATTEMPTS_MAX):
        with errors_maybe_applied(has_begun=attempt > 0):
            topic = instance.topic_cache.read_through(parse_own_topic_name(name))
        if planned is not None:
            _check_planned(topic, planned)
            if topic.mirror is not None:
                topic = follow(instance, planned.source, planned.mirror, topic.mirror.source)
        if topic.mirror is None:
            return topic
        decided = decide(topic.mirror, UNPLANNED if planned is None else planned.number)
        noted = replace(topic, mirror=replace(topic.mirror, decided=decided))
        if noted == topic or _replaced(instance, topic, noted):
            return noted
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by pushes all the time: promote it again"
    )


def _check_planned(topic: Topic, planned: PlannedPromotion) -> None:
    if (topic.topic_id, topic.name) != (planned.topic_id, planned.source.name):
        raise PenstockError(
            ErrorCode.TOPIC_EXISTS,
            f"topic {topic.name!r} has id {topic.topic_id}, and the promotion is of {planned.source.name!r} with id "
            f"{planned.topic_id}: it was made anew, so promote it again",
        )
    if topic.mirror is not None:
        check_mirrors(topic, planned.source, planned.mirror)


def _replaced(instance: Instance, old: Topic, new: Topic) -> bool:
    """False if another call has altered the topic meanwhile."""
    with errors_maybe_applied():
        try:
            instance.stores.topics.replace(old, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            return False
    instance.topic_cache.forget(old.name)
    return True


def resync_topic(instance: Instance, name: str) -> TopicId:
    """The id of the mirrored topic that was removed. The next push makes it anew, under another id, from its begin.

    Costs and raises as `delete_topic`. INVALID_REQUEST for a topic that is no mirror, or whose
    promotion has begun: its heads may have records of their own.
    """
    topic = instance.topic_cache.read_through(parse_own_topic_name(name))
    if topic.mirror is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"topic {name!r} is no mirror: delete it, if its mirror is to begin anew"
        )
    if topic.mirror.decided >= 0:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the promotion of topic {name!r} has begun, so some partitions may have records of their own: promote it "
            "to the end, with --source-lost if the source cannot",
        )
    return remove_topic(instance, topic)


def _heads(instance: Instance, topic: Topic) -> dict[PartitionKey, Head]:
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_heads()]
    found: dict[PartitionKey, Head] = {}
    for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
        found |= instance.stores.log.heads(keys[start : start + BATCH_GET_KEYS_MAX])
    return found


def _promote_heads(
    instance: Instance, topic: Topic, mirror: str, ends: Mapping[Partition, LogEnd]
) -> dict[PartitionKey, Head]:
    """The heads after the promotion of those that end where they must. Heads of partitions that went have no end."""
    own = replace(topic, mirror=None)
    now_ms = instance.clock.now_ms()

    def promote(partition: Partition) -> tuple[PartitionKey, Head | None]:
        key = PartitionKey(topic.topic_id, partition)
        closed_ms = None if own.is_writable(partition) else now_ms
        return key, instance.stores.log.promote(key, mirror, topic.layout, closed_ms, ends.get(partition))

    promoted = instance.executor.map(promote, [*topic.all_heads()]).all_ok()
    return {key: head for key, head in promoted if head is not None}


def _told(instance: Instance, heads: dict[PartitionKey, Head]) -> list[PromotedPartition]:
    return [_partition(instance, key, head) for key, head in sorted(heads.items()) if head.promoted_at is not None]


def _partition(instance: Instance, key: PartitionKey, head: Head) -> PromotedPartition:
    ended = head.promoted_at or Offset(0)
    last = Offset(ended - 1)
    is_there = last >= head.log_start_offset
    appended_ms = written_ms(ref_at(instance, key, head, last).ref) if is_there else None
    return PromotedPartition(partition=key.partition, promoted_at=ended, appended_ms=appended_ms)
