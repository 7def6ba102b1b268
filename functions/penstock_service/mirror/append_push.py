"""Append a push of another stage at the source's offsets (docs/protocol/mirrors).

```
 look up the topic ─▶ make it, or let it follow the source's settings ─▶ read the head: takes it the push?
    no:  answer where the log ends, or that it is another log
    yes: put the batches as one segment ─▶ one update of the head, on condition of mirror, log and place
```
Each step may come twice, late, or from several pushes. The update decides, and what came before it leaves a segment
that no ref names, or partitions without records.
"""

from collections.abc import Sequence
from dataclasses import replace

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TOPIC_ID_BYTES, Partition, PartitionKey, new_topic_id, parse_own_topic_name
from penstock_core.limits import MIRROR_ATTEMPTS_MAX
from penstock_core.log.index import Head, unknown_partition
from penstock_core.log.ref import Ref
from penstock_core.log.retention_raise import kept_days
from penstock_core.log.timer import Timer, delivered
from penstock_core.log.topic import MirrorNote, Topic, TopicConfig, alter_config, check_partitions
from penstock_core.log.wake_up import WakeUp
from penstock_core.mirror.group_offsets import OffsetsTelling, decode_offsets
from penstock_core.mirror.push import MirrorAppend, MirrorPush, PushAnswer, SourceTopic, answer_at
from penstock_core.mirror.told_timers import TimersTelling
from penstock_core.records.record_batch import check_stored
from penstock_core.zones.zone_state import Acks
from penstock_service.index.heads import create_heads
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment, UpdateWindow
from penstock_service.records.append import PartitionBatches, put_batches
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.wake_readers import wake_beside
from penstock_service.topics.create_topic import check_room, make_topic

_NEVER = 0  # no telling has this number, and none replaces the one before it


def append_push(instance: Instance, push: MirrorPush) -> PushAnswer:
    """The end of the partition's log after the push, which it has then, or could not take there.

    A push without batches only asks. One with `offsets` keeps those of groups, as `keep_offsets` says, and one with
    `timers` compares or keeps copies of delayed records, as keep_timers.py says.

    One read of the head, one put per zone or one of an item, one update, and what rolls, evictions and wake-ups cost.
    Makes the topic if there is none of that name, as `create_topic` does, or alters it, as `alter_topic` does.

    Raises CORRUPT_BATCH for batches that are not what the push tells, and TOPIC_EXISTS for a name that is taken. Raises
    MIRROR_ENDED once the topic was promoted, and INVALID_CONFIG for settings that this release does not know. Raises
    THROTTLED if the topic is made anew all the time.
    """
    if push.offsets is not None:
        return keep_offsets(instance, push, push.offsets)
    if push.timers is not None:
        return _answer_timers(instance, push, push.timers)
    _check_parts(push)
    for _ in range(MIRROR_ATTEMPTS_MAX):
        topic_read = instance.topic_cache.read_moment(push.topic.name)
        topic = follow(instance, push.topic, push.mirror, push.source)
        key = PartitionKey(topic.topic_id, Partition(push.partition))
        head = instance.stores.log.heads([key]).get(key)
        if head is None:  # the topic was deleted, and perhaps made anew, since it was looked up
            instance.topic_cache.forget(topic.name)
            continue
        answer = _answer(instance, key, head, push)
        if answer is not None:
            return answer
        if not push.parts:
            return PushAnswer(next_offset=head.next_offset, topic_id=key.topic_id)
        stored, refs = put_batches(instance, _batches(push, key, topic, topic_read), Acks.QUORUM)
        append = MirrorAppend(
            mirror=push.mirror,
            log_id=push.log_id,
            base_offset=push.base_offset,
            refs=tuple(part.ref_of(ref) for part, ref in zip(push.parts, refs, strict=True)),
            producers=push.producers,
            marks=_marks(instance, key, push, refs),
        )
        stored.window.check()
        done = instance.stores.log.append_mirrored(key, append, stored.unconfirmed_zones)
        if done is None:
            raise unknown_partition(key)
        if done.is_appended:
            added = sum(producer not in head.producers for producer in push.producers)
            _finish(
                instance,
                stored.window,
                GrownHead(key=key, head=done.head, added_refs=len(append.refs), added_producers=added),
                must_wake=done.took_waiter,
            )
            return PushAnswer(next_offset=done.head.next_offset, topic_id=key.topic_id)
        answer = _answer(instance, key, done.head, push)
        if answer is not None:
            return answer
    raise PenstockError(
        ErrorCode.THROTTLED,
        f"partition {push.partition} of topic {push.topic.name!r} is being deleted or made anew: push again",
    )


def _marks(instance: Instance, key: PartitionKey, push: MirrorPush, refs: Sequence[Ref]) -> list[Timer]:
    """The marks of the timers that have waited for the records of the push."""
    marks, position, now_ms = list[Timer](), 0, instance.clock.now_ms()
    for part, ref in zip(push.parts, refs, strict=True):
        data = push.data[position : position + part.length]
        position += part.length
        if part.timer is not None:
            waited = Timer(key=key, place=part.timer, ref=ref, crc=crc32c(bytes(data)), is_copy=True)
            marks.append(delivered(waited, now_ms))
    return marks


def _answer_timers(instance: Instance, push: MirrorPush, telling: TimersTelling) -> PushAnswer:
    """Raises as `append_push`, and TOPIC_EXISTS once the promotion is decided."""
    from penstock_service.mirror.keep_timers import compare_timers, keep_timers  # most mirrors have no delayed records

    _check_parts(push)
    if len(push.parts) != len(telling.copied):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{len(push.parts)} parts for {len(telling.copied)} timers: give one for each"
        )
    window, topic_read = UpdateWindow.open(instance.clock), Moment.now(instance.clock)
    topic = _follow_now(instance, push)
    if topic.mirror is not None and topic.mirror.decided >= 0:
        raise PenstockError(ErrorCode.TOPIC_EXISTS, f"the promotion of topic {topic.name!r} has begun")
    key = PartitionKey(topic.topic_id, Partition(push.partition))
    if push.partition >= topic.head_count:
        raise unknown_partition(key)
    answer = (
        keep_timers(instance, window, key, push, _batches(push, key, topic, topic_read))
        if telling.listed is None
        else compare_timers(instance, key, telling)
    )
    return PushAnswer(next_offset=push.base_offset, topic_id=topic.topic_id, timers=answer)


def keep_offsets(instance: Instance, push: MirrorPush, telling: OffsetsTelling) -> PushAnswer:
    """The number of the telling that the mirror has now, and whether that is this one.

    One conditional write. Raises INVALID_REQUEST for bytes that are no offsets, and TOPIC_EXISTS once it knows that the
    topic's promotion is decided. One that comes in before is what a repeat of the promotion tells.
    """
    offsets = decode_offsets(bytes(push.data), telling.read_ms, telling.left_out)
    window = UpdateWindow.open(instance.clock)  # the item goes with the topic, once no call can write it any more
    topic = _follow_now(instance, push)
    if topic.mirror is not None and topic.mirror.decided >= 0:
        raise PenstockError(ErrorCode.TOPIC_EXISTS, f"the promotion of topic {topic.name!r} has begun")
    window.check()
    base = topic.created_at_ms  # numbers count from here, so that none of a mirror is one of the mirror before it
    wanted = max(_NEVER, telling.replaces - base + 1)
    number, kept = instance.stores.log.put_offsets(topic.topic_id, wanted, offsets)
    return PushAnswer(
        next_offset=push.base_offset,
        topic_id=topic.topic_id,
        offsets_number=base + number,
        is_offsets_kept=wanted > _NEVER and (number, kept) == (wanted, offsets),
    )


def _follow_now(instance: Instance, push: MirrorPush) -> Topic:
    """The topic as it is now. What a topic is told that was begun anew is lost, and no head refuses it as a push is."""
    instance.topic_cache.forget(push.topic.name)
    return follow(instance, push.topic, push.mirror, push.source)


def _answer(instance: Instance, key: PartitionKey, head: Head, push: MirrorPush) -> PushAnswer | None:
    """The answer of a head that cannot take the push. A first try may have died before its wake-up, so one is sent."""
    answer = answer_at(head, push)
    if push.parts and answer is not None and not answer.diverged and answer.next_offset >= push.next_offset:
        wake_beside(instance, [WakeUp(key=key, next_offset=answer.next_offset)], lambda: None)
    return None if answer is None else replace(answer, topic_id=key.topic_id)


def _finish(instance: Instance, window: UpdateWindow, grown: GrownHead, *, must_wake: bool) -> None:
    wake_ups = [WakeUp(key=grown.key, next_offset=grown.head.next_offset)] if must_wake else []
    wake_beside(instance, wake_ups, lambda: shorten_heads(instance, window, [grown]))


def follow(instance: Instance, told: SourceTopic, mirror: str, source: str) -> Topic:
    """The mirrored topic, with the partitions and settings that are told of its source, or newer ones.

    A topic that has them already costs a read if it is not remembered. Raises as `append_push`.
    """
    name = parse_own_topic_name(told.name)
    topic = instance.topic_cache.find(name)
    if topic is None:
        return _created(instance, told, told.note_of(mirror, source))
    if _is_behind(instance, topic, told, mirror):
        window = UpdateWindow.open(instance.clock)
        topic = instance.topic_cache.read_through(name)
        if _is_behind(instance, topic, told, mirror):
            topic = _altered(instance, window, topic, (told, source))
    check_mirrors(topic, told, mirror)
    return topic


def _is_behind(instance: Instance, topic: Topic, told: SourceTopic, mirror: str) -> bool:
    """True if the settings that are told are newer than the topic's, and others."""
    check_mirrors(topic, told, mirror)
    return told.is_newer_than(topic) and told.applied_to(topic, instance.clock.now_ms()) != topic


def check_mirrors(topic: Topic, told: SourceTopic, mirror: str) -> None:
    """Raises TOPIC_EXISTS unless the topic is this mirror of that topic."""
    if topic.mirror is None:
        raise PenstockError(
            ErrorCode.TOPIC_EXISTS,
            f"topic {topic.name!r} takes appends of its own: it was promoted, or is no mirror. Delete it, or give the "
            "mirror a prefix",
        )
    if (topic.mirror.name, topic.mirror.topic_id) != (mirror, told.topic_id):
        raise PenstockError(
            ErrorCode.TOPIC_EXISTS,
            f"topic {topic.name!r} is the mirror {topic.mirror.name!r} of topic {topic.mirror.topic_id}, and the push "
            f"is of mirror {mirror!r} of topic {told.topic_id}: begin it anew by `penstock mirrors resync`",
        )


def _created(instance: Instance, told: SourceTopic, note: MirrorNote) -> Topic:
    """A topic whose heads take the mirror's pushes alone."""
    window = UpdateWindow.open(instance.clock)
    now_ms = instance.clock.now_ms()
    topic = Topic(
        name=parse_own_topic_name(told.name),
        topic_id=new_topic_id(instance.entropy.random_bytes(TOPIC_ID_BYTES)),
        partitions=check_partitions(told.partitions),
        created_at_ms=now_ms,
        config=alter_config(TopicConfig(), told.config),
        mirror=note,
    )
    check_room(instance, topic.name)
    return make_topic(instance, window, told.applied_to(topic, now_ms))


def _altered(instance: Instance, window: UpdateWindow, old: Topic, by: tuple[SourceTopic, str]) -> Topic:
    """The topic with the source's partitions and settings. The heads come first, as in alter_topic.py."""
    assert old.mirror is not None
    told, source = by
    changed = told.applied_to(old, instance.clock.now_ms())
    new = replace(changed, mirror=replace(old.mirror, source=source, settings_ms=told.settings_ms))
    added = map(Partition, range(old.head_count, new.head_count))
    create_heads(instance, window, new, added, has_push_waiter=True)
    window.check()
    instance.stores.topics.replace(old, new)
    instance.topic_cache.forget(old.name)
    return new


def _check_parts(push: MirrorPush) -> None:
    """Raises CORRUPT_BATCH unless the bytes are those of the parts: whole batches over as many offsets."""
    position = 0
    for part in push.parts:
        try:
            check_stored(push.data[position : position + part.length], part.offset_span)
        except PenstockError as error:
            raise PenstockError(ErrorCode.CORRUPT_BATCH, f"part at byte {position}: {error.message}") from error
        position += part.length
    if position != len(push.data):
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH, f"{len(push.parts)} parts of {position} bytes in a push of {len(push.data)}"
        )


def _batches(push: MirrorPush, key: PartitionKey, topic: Topic, topic_read: Moment) -> list[PartitionBatches]:
    """The batches of each part, which one segment holds."""
    found, position = [], 0
    for part in push.parts:
        found.append(
            PartitionBatches(
                key=key,
                data=push.data[position : position + part.length],
                summary=part.summary,
                min_insync_zones=topic.config.min_insync_zones,
                tag_filter=part.tag_filter,
                may_expire=part.may_expire,
                kept_days=kept_days(topic),
                topic_read=topic_read,
            )
        )
        position += part.length
    return found
