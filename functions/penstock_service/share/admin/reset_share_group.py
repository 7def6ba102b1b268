"""Set the place at which a share group goes on in a topic. Records in flight are handed out again, or not at all.

A reset begins a new generation of each partition's state. All locks are lost, and whatever was planned before the reset
does not apply after it.

Delete a share group: first the group, then its states, and last the note of its deletion.

No state is made once the group is gone (`ShareStore.begin_state`). As long as the note exists, the retention run
deletes the states that a deletion has left (retention/remove_share_states.py).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import concurrent_update
from penstock_core.ids import GroupName, Offset, Partition, ShareGroupId, TopicName
from penstock_core.limits import OFFSET_RESET_ATTEMPTS_MAX
from penstock_core.outcomes import Outcome, errors_maybe_applied, outcome_of
from penstock_core.share.share_group import deletion_note
from penstock_core.share.share_state import ShareKey
from penstock_service.index.heads import announce_reader
from penstock_service.instance.instance import Instance
from penstock_service.share.share_partitions import states_of, states_that_may_be, wake_workers
from penstock_service.topics.list_offsets import ListedOffset, OffsetSpec, ResetOffset, list_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareResetTo:
    """The place to go on at. Set exactly one field: an end of the log, a time, or an offset within the log."""

    end: OffsetSpec | None = None
    timestamp_ms: int | None = None
    offset: int | None = None


def reset_share_group(
    instance: Instance,
    name: str,
    topic_name: str,
    to: ShareResetTo,
    partitions: Sequence[int] | None = None,
    *,
    is_dry_run: bool = False,
) -> list[tuple[Partition, Outcome[ResetOffset]]]:
    """The result of each partition, in order of their numbers; all partitions of the topic without `partitions`.

    What `list_offsets` costs, and for each partition one read and one conditional update. A dry run costs one read for
    each 100 partitions in place of these, and changes nothing. Raises INVALID_NAME, UNKNOWN_SHARE_GROUP, UNKNOWN_TOPIC
    if the group does not read the topic, UNKNOWN_PARTITION, and CONCURRENT_UPDATE if partitions come meanwhile.
    """
    group = instance.share_group_cache.read_through(name)
    topic = instance.topic_cache.read_through(topic_name)
    if group.topics.get(TopicName(topic_name)) != topic.topic_id:
        raise PenstockError(
            ErrorCode.UNKNOWN_TOPIC,
            f"share group {group.name!r} does not read topic {topic_name!r}, or one that was deleted since: its topics "
            f"are {', '.join(sorted(group.topics))}",
        )
    numbers = sorted({*(topic.all_partitions() if partitions is None else map(Partition, partitions))})
    for number in numbers:
        instance.topic_cache.get_partition(topic_name, number)
    targets = _targets(instance, topic_name, to, set(numbers))
    if is_dry_run:
        return _planned(
            instance, [ShareKey(group.share_group_id, topic.topic_id, number) for number in numbers], targets
        )

    def reset_one(number: Partition) -> ResetOffset:
        key = ShareKey(group.share_group_id, topic.topic_id, number)
        done = _reset(instance, group.name, key, targets[number])
        with errors_maybe_applied():
            announce_reader(instance, topic.name, key.partition_key)
        return done

    results = instance.executor.map(reset_one, numbers)
    if results.ok:
        # One message is enough: it wakes every consumer that waits for something of the group.
        wake_workers(instance, [ShareKey(group.share_group_id, topic.topic_id, numbers[0])])
    return list(zip(numbers, results, strict=True))


def _planned(
    instance: Instance, keys: Sequence[ShareKey], targets: Mapping[Partition, Outcome[Offset]]
) -> list[tuple[Partition, Outcome[ResetOffset]]]:
    """The results that a reset to the targets would have now."""
    states = states_of(instance, keys)

    def planned(key: ShareKey) -> Outcome[ResetOffset]:
        target, state = targets[key.partition], states.get(key)
        if isinstance(target, PenstockError):
            return target
        return ResetOffset(old_offset=None if state is None else state.position, new_offset=target)

    return [(key.partition, planned(key)) for key in keys]


def _targets(
    instance: Instance, topic_name: str, to: ShareResetTo, numbers: set[Partition]
) -> dict[Partition, Outcome[Offset]]:
    """The new position of each partition, or why it has none."""

    def listed(spec: OffsetSpec | int) -> dict[Partition, Outcome[ListedOffset]]:
        topic = instance.topic_cache.get(topic_name)
        only = next(iter(numbers)) if len(numbers) == 1 else None
        found = list_offsets(instance, topic_name, spec, only)
        places = [only] if only is not None else [*topic.all_partitions()]
        if len(found) != len(places):
            raise concurrent_update(f"topic {topic_name}")
        return {number: each for number, each in zip(places, found, strict=True) if number in numbers}

    ends = listed(OffsetSpec.LATEST)
    starts = listed(OffsetSpec.EARLIEST)
    found = listed(to.timestamp_ms) if to.timestamp_ms is not None else {}

    def target(number: Partition) -> Offset:
        start, end = _offset(starts[number], Offset(0)), _offset(ends[number], Offset(0))
        if to.end is not None:
            return start if to.end is OffsetSpec.EARLIEST else end
        if to.timestamp_ms is not None:
            return _offset(found[number], end)
        offset = Offset(to.offset or 0)
        if not start <= offset <= end:
            raise PenstockError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of partition {number} of topic {topic_name!r} is out of range: it holds "
                f"[{start}, {end})",
                log_start_offset=start,
                high_watermark=end,
            )
        return offset

    return {number: outcome_of(target, number) for number in numbers}


def _offset(listed: Outcome[ListedOffset], default: Offset) -> Offset:
    if isinstance(listed, PenstockError):
        raise listed
    return default if listed.offset is None else listed.offset


def _reset(instance: Instance, group: GroupName, key: ShareKey, target: Outcome[Offset]) -> ResetOffset:
    if isinstance(target, PenstockError):
        raise target
    share = instance.stores.share
    old_offset: Offset | None = None
    for attempt in range(OFFSET_RESET_ATTEMPTS_MAX):
        state = share.find_states([key]).get(key)
        if state is None:
            state = share.begin_state(group, key, target)
            if state is None:
                raise PenstockError(
                    ErrorCode.UNKNOWN_SHARE_GROUP, f"share group {group!r} was deleted: create it again"
                )
            if state.position == target and not state.locks and not state.waits:
                return ResetOffset(old_offset=None, new_offset=target)
        old_offset = state.position if attempt == 0 else old_offset
        if share.reset(key, state, target):
            return ResetOffset(old_offset=old_offset, new_offset=target)
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"partition {key.partition_key} was reset by others all the time: try again"
    )


def delete_share_group(instance: Instance, name: str) -> ShareGroupId:
    """Remove the group, and give its id. All locks are lost.

    One read of the group and of each topic, one transaction, one delete for each partition, and one for the note. The
    note stays if one of the topics was deleted, if the group has left one, or if a delete fails: retention removes the
    rest. Raises INVALID_NAME, UNKNOWN_SHARE_GROUP, and CONCURRENT_UPDATE if somebody else changes the group meanwhile.
    """
    group = instance.share_group_cache.read_through(name)
    instance.stores.share.delete_group(group)
    instance.share_group_cache.forget(name)
    for topic in group.topics:
        instance.topic_cache.forget(topic)  # partitions that were added lately may have a state
    with suppress(PenstockError):  # retention does it later
        keys = [key for _, key in states_that_may_be(instance, group)]
        instance.executor.map(instance.stores.share.delete_state, keys).all_ok()
        if {key.topic_id for key in keys} == group.topic_ids:
            instance.stores.share.forget_group(deletion_note(group))
    return group.share_group_id
