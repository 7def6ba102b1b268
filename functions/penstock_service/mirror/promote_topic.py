"""Promote a mirrored topic: it takes appends of its own from now on. Or remove it, so that its mirror begins anew.

```
 1  each head: the mirror's name goes, so no push is appended any more; the head follows the topic's layout
 2  the topic: its note of the mirror goes, so it may be altered and deleted as any other
```
A call that died leaves some heads promoted, and the next one goes on. Between the steps pushes to the other heads are
still appended: each head's log is a prefix of its source's, whatever the others have.
"""

from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId, parse_own_topic_name
from penstock_core.limits import BATCH_GET_KEYS_MAX, OPEN_ATTEMPTS_MAX
from penstock_core.log.index import Head
from penstock_core.log.retention import written_ms
from penstock_core.log.topic import Topic
from penstock_core.outcomes import errors_maybe_applied
from penstock_service.index.reader import ref_at
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import remove_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedPartition:
    """The end of a mirrored log, and the append time of its newest records at the source, None for an empty one."""

    partition: Partition
    promoted_at: Offset
    appended_ms: int | None


def promote_topic(instance: Instance, name: str) -> list[PromotedPartition]:
    """All partitions by number, once they take appends.

    Two reads, one update for each head, one of the topic, and a query for a partition whose tail is empty. A repeat
    answers as the first call. Raises INVALID_NAME, UNKNOWN_TOPIC, INVALID_REQUEST for a topic that was never mirrored,
    and CONCURRENT_UPDATE if pushes keep changing its settings.
    """
    for _ in range(OPEN_ATTEMPTS_MAX):
        topic = instance.topic_cache.read_through(parse_own_topic_name(name))
        if topic.mirror is None:
            break
        heads = _promote_heads(instance, topic, topic.mirror.name)
        with errors_maybe_applied():
            try:
                instance.stores.topics.replace(topic, replace(topic, mirror=None))
            except PenstockError as error:
                if error.code is not ErrorCode.CONCURRENT_UPDATE:
                    raise
                continue  # a push has told new settings, perhaps more partitions
        instance.topic_cache.forget(name)
        return _told(instance, heads)
    found = _heads(instance, topic)
    if topic.mirror is not None:
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by pushes all the time: promote it again"
        )
    if all(head.promoted_at is None for head in found.values()):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is no mirror: it takes appends already")
    return _told(instance, found)


def resync_topic(instance: Instance, name: str) -> TopicId:
    """The id of the mirrored topic that was removed. The next push makes it anew, under another id, from its begin.

    Costs and raises as `delete_topic`, and a read of the heads. INVALID_REQUEST for a topic that is no mirror, or whose
    promotion has begun: its heads may have records of their own.
    """
    topic = instance.topic_cache.read_through(parse_own_topic_name(name))
    if topic.mirror is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"topic {name!r} is no mirror: delete it, if its mirror is to begin anew"
        )
    if any(head.promoted_at is not None for head in _heads(instance, topic).values()):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the promotion of topic {name!r} has begun, and its partitions may have records of their own: promote it "
            "again, then delete it if its mirror is to begin anew",
        )
    return remove_topic(instance, topic)


def _heads(instance: Instance, topic: Topic) -> dict[PartitionKey, Head]:
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_heads()]
    found: dict[PartitionKey, Head] = {}
    for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
        found |= instance.stores.log.heads(keys[start : start + BATCH_GET_KEYS_MAX])
    return found


def _promote_heads(instance: Instance, topic: Topic, mirror: str) -> dict[PartitionKey, Head]:
    own = replace(topic, mirror=None)
    now_ms = instance.clock.now_ms()

    def promote(partition: Partition) -> tuple[PartitionKey, Head | None]:
        key = PartitionKey(topic.topic_id, partition)
        closed_ms = None if own.is_writable(partition) else now_ms
        return key, instance.stores.log.promote(key, mirror, topic.layout, closed_ms)

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
