"""Set a group's offsets, as an operator does: to an end, to a time, some records back or on, or to given offsets.

The reset first changes each lease, which fences its owner, and then expels every member. A member has to join again to
go on, and by then all leases have their new offsets. Members that join during the reset are expelled too. So no member
keeps a lease that it got before the lease was reset.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset, Lease, next_lease_epoch
from penstock_core.ids import (
    EPOCH_BYTES,
    GroupName,
    Offset,
    Partition,
    PartitionKey,
    parse_group_name,
    random_start,
)
from penstock_core.limits import OFFSET_RESET_ATTEMPTS_MAX
from penstock_core.log.index import Head, check_position
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome, Outcomes, errors_maybe_applied
from penstock_service.groups.claim_group import keep_listed, list_group
from penstock_service.groups.describe_group import live_members
from penstock_service.groups.rebalance import rebalance
from penstock_service.index.heads import announce_reader
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.groups import MembershipStore
from penstock_service.ports.runtime import Executor
from penstock_service.topics.list_offsets import OffsetSpec, ResetOffset, list_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo:
    """The new offsets. Set exactly one field.

    `end` is an end of the log. `timestamp_ms` means the first record at or after the time, or the log's end if there is
    none. `shift_by` is added to the committed offset, within the ends of the log. `offsets` has one for each partition.
    """

    end: OffsetSpec | None = None
    timestamp_ms: int | None = None
    shift_by: int | None = None
    offsets: Mapping[int, int] | None = None


def reset_offsets(
    instance: Instance,
    group_name: str,
    topic_name: str,
    to: ResetTo,
    partitions: Sequence[int] | None = None,
    *,
    is_dry_run: bool = False,
    is_forced: bool = False,
    principal: str = "",
) -> list[tuple[Partition, Outcome[ResetOffset]]]:
    """One result per partition: all of the topic's, or only the ones that `partitions` or the given offsets name.

    Reads the leases and the heads, and for a time what `list_offsets` reads. Then one conditional update for each
    partition, a query of the members and a delete for each. Raises GROUP_NOT_EMPTY while the group has live members,
    unless the reset is forced or a dry run; INVALID_NAME, INVALID_REQUEST, UNKNOWN_TOPIC, and QUOTA_EXCEEDED if the
    group is new, and the principal may have no more. A partition's error is
    UNKNOWN_PARTITION, OFFSET_OUT_OF_RANGE for a given offset, or INVALID_REQUEST without an offset to shift. Raises
    CONCURRENT_UPDATE with `maybe_applied` if the offsets were reset but members could not be expelled.
    """
    window, group = UpdateWindow.open(instance.clock), parse_group_name(group_name)
    _check_target(to)
    topic = instance.topic_cache.read_through(topic_name)
    keys = _keys(topic, to, partitions)
    if not (is_forced or is_dry_run) and (alive := live_members(instance.stores.memberships, instance.clock, group)):
        raise PenstockError(
            ErrorCode.GROUP_NOT_EMPTY,
            f"group {group} has {len(alive)} members: stop them, or force the reset, and they start again from it",
        )
    heads = instance.stores.log.heads(keys)
    leases = instance.stores.groups.find_leases(group, keys)
    at_time = _at_time(instance, topic_name, to)
    if not is_dry_run:
        list_group(instance, window, principal, group)

    def reset_one(key: PartitionKey) -> ResetOffset:
        if key not in heads:
            raise PenstockError(
                ErrorCode.UNKNOWN_PARTITION,
                f"partition {key.partition} of topic {topic_name!r} does not exist: it has 0 to {topic.partitions - 1}",
            )
        seen = leases.get(key) or Lease(topic=topic.name, partition=key)
        offset = _new_offset(to, key.partition, seen.offset, heads[key], at_time)
        if not is_dry_run:
            _reset(instance, window, group, seen, offset)
        return ResetOffset(old_offset=seen.offset, new_offset=offset)

    results = instance.executor.map(reset_one, keys)
    if not is_dry_run and results.may_have_begun:  # else no lease has changed: no member need join again
        with errors_maybe_applied():
            keep_listed(instance, principal, group)
            results = _announced(instance, window, group, topic, keys, results)
            # A member that joins again under its name gets what the target gives it. So no target of before the reset
            # may be left: older generations may be unread now. Members that joined meanwhile are expelled, too.
            _make_target_anew(instance, group, topic)
            _expel_all(instance.stores.memberships, instance.executor, group)
            _make_target_anew(instance, group, topic)
    return [(key.partition, result) for key, result in zip(keys, results, strict=True)]


def _check_target(to: ResetTo) -> None:
    if sum(each is not None for each in (to.end, to.timestamp_ms, to.shift_by, to.offsets)) != 1:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "say where to reset to by one of to, timestamp_ms, shift_by and offsets"
        )


def _keys(topic: Topic, to: ResetTo, partitions: Sequence[int] | None) -> list[PartitionKey]:
    """The partitions to reset, each once. Raises INVALID_REQUEST if they are named twice."""
    if to.offsets is not None and partitions is not None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "offsets name their partitions: leave partitions out")
    numbers: Iterable[int] | None = partitions if to.offsets is None else to.offsets
    return [
        PartitionKey(topic.topic_id, Partition(number))
        for number in dict.fromkeys(topic.all_partitions() if numbers is None else numbers)
    ]


def _at_time(instance: Instance, topic_name: str, to: ResetTo) -> Mapping[Partition, Offset | None]:
    if to.timestamp_ms is None:
        return {}
    return {each.partition: each.offset for each in list_offsets(instance, topic_name, to.timestamp_ms, None).all_ok()}


def _new_offset(
    to: ResetTo, partition: Partition, old: Offset | None, head: Head, at_time: Mapping[Partition, Offset | None]
) -> Offset:
    low, high = head.log_start_offset, head.high_watermark
    if to.end is not None:
        return low if to.end is OffsetSpec.EARLIEST else high
    if to.timestamp_ms is not None:
        found = at_time.get(partition)
        return high if found is None else found
    if to.shift_by is not None:
        if old is None:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST, f"nothing is committed for partition {partition}: there is nothing to shift"
            )
        shifted = Offset(min(high, max(low, old + to.shift_by)))
        return head.next_readable(shifted) if to.shift_by > 0 else _before_jump(head, shifted)
    assert to.offsets is not None
    offset = to.offsets[partition]
    if not low <= offset <= high:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of partition {partition} lies outside of its log, from {low} to {high}",
            log_start_offset=low,
            high_watermark=high,
        )
    check_position(head, partition, offset)
    return Offset(offset)


def _before_jump(head: Head, offset: Offset) -> Offset:
    """The start of the jump that holds the offset, or the offset."""
    return next((jump.start for jump in head.jumps if jump.holds(offset)), offset)


def _reset(instance: Instance, window: UpdateWindow, group: GroupName, seen: Lease, offset: Offset) -> None:
    """Reset one lease; read it again and retry if a heartbeat or a commit has changed it since it was `seen`."""
    topic, key = seen.topic, seen.partition
    for attempt in range(1, OFFSET_RESET_ATTEMPTS_MAX + 1):
        committed = CommittedOffset(
            topic=topic, partition=key, offset=offset, metadata="", committed_at_ms=instance.clock.now_ms()
        )
        try:
            epoch = next_lease_epoch(seen, random_start(instance.entropy.random_bytes(EPOCH_BYTES)))
            window.check()
            instance.stores.groups.reset_lease(group, seen, committed, epoch)
            return
        except PenstockError as error:
            if attempt == OFFSET_RESET_ATTEMPTS_MAX or error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            seen = instance.stores.groups.find_leases(group, [key]).get(key) or Lease(topic=topic, partition=key)


def _announced(
    instance: Instance,
    window: UpdateWindow,
    group: GroupName,
    topic: Topic,
    keys: Sequence[PartitionKey],
    results: Outcomes[ResetOffset],
) -> Outcomes[ResetOffset]:
    """The results, once retention knows the new places. If it was faster, the group goes on where the log begins."""

    def announce(index: int) -> ResetOffset:
        done = results[index]
        if isinstance(done, PenstockError):
            raise done
        head = announce_reader(instance, topic.name, keys[index])
        if head is None or head.log_start_offset <= done.new_offset:
            return done
        _reset(instance, window, group, Lease(topic=topic.name, partition=keys[index]), head.log_start_offset)
        return replace(done, new_offset=head.log_start_offset)

    return instance.executor.map(announce, range(len(keys)))


def _make_target_anew(instance: Instance, group: GroupName, topic: Topic) -> None:
    """Hold later generations back again, if the topic has some and the group has a target."""
    if len(topic.generations) > 1 and instance.stores.memberships.get_group(group) is not None:
        rebalance(instance, group, is_forced=True)


def _expel_all(memberships: MembershipStore, executor: Executor, group: GroupName) -> None:
    """Delete the items of all members. Raises CONCURRENT_UPDATE if the heartbeats of some member come faster."""
    for _ in range(OFFSET_RESET_ATTEMPTS_MAX):
        members = memberships.members(group)
        removed = executor.map(lambda member: memberships.remove_member(group, member), members)
        if all(each is True for each in removed):
            return
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"the offsets were reset, and members of group {group} go on from where they were: stop them, or try again",
    )
