"""Set a group's offsets, as an operator does: to an end, a time, some records back or on, or to what is given.

First each lease is reset, which fences its owner, then every member is expelled. So a member that goes on reads
from where it was told to: it has to join anew, and by then all leases have their new offsets. Expelling whoever
joined meanwhile, too, leaves nobody who was granted a lease before its reset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.describe_group import live_members
from penstock_broker.list_offsets import OffsetSpec, list_offsets, listed
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import EPOCH_BYTES, GroupName, Offset, Partition, TopicName, drawn_number, parse_group_name
from penstock_core.index import Head
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey
from penstock_core.lease import Lease, next_epoch

_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo:
    """Exactly one of these: an end; the first record at or after a time (the end, if there is none); the committed
    offset plus `shift_by`, which stops at the ends; or an offset for each partition."""

    end: OffsetSpec | None = None
    timestamp_ms: int | None = None
    shift_by: int | None = None
    offsets: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """What a partition's offset was, and what it is now (or would be)."""

    old_offset: Offset | None
    new_offset: Offset


def reset_offsets(
    broker: Broker,
    group_name: str,
    topic_name: str,
    to: ResetTo,
    partitions: Sequence[int] | None = None,
    *,
    is_dry_run: bool = False,
    is_forced: bool = False,
) -> list[tuple[Partition, ResetOffset | PenstockError]]:
    """One result for each of the topic's partitions, or of those named (by `partitions`, or by the offsets given).

    Reads the leases and the heads, and what `list_offsets` reads for a time; then one conditional update for each
    partition, a query of the members and a delete for each. Raises GROUP_NOT_EMPTY while members live, unless
    forced (or it is a dry run), INVALID_NAME, INVALID_REQUEST, UNKNOWN_TOPIC. A partition's result is
    UNKNOWN_PARTITION, or OFFSET_OUT_OF_RANGE for an offset given, or INVALID_REQUEST where there is no offset to
    shift.
    """
    group = parse_group_name(group_name)
    if sum(each is not None for each in (to.end, to.timestamp_ms, to.shift_by, to.offsets)) != 1:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "say where to reset to by one of to, timestamp_ms, shift_by and offsets"
        )
    topic = broker.directory.look_up(topic_name)
    if to.offsets is not None and partitions is not None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "offsets name their partitions: leave partitions out")
    numbers = [*to.offsets] if to.offsets is not None else partitions
    if numbers is None:
        numbers = [*topic.all_partitions()]
    if not (is_forced or is_dry_run) and (alive := live_members(broker, group)):
        raise PenstockError(
            ErrorCode.GROUP_NOT_EMPTY,
            f"group {group} has {len(alive)} members: stop them, or force the reset, and they start again from it",
        )
    keys = [PartitionKey(topic.topic_id, Partition(number)) for number in dict.fromkeys(numbers)]
    heads = broker.log.heads(keys)
    leases = broker.groups.find_leases(group, keys)
    at_time = _at_time(broker, topic_name, to)
    if not is_dry_run:
        broker.group_directory.register(group)

    def reset_one(key: PartitionKey) -> ResetOffset:
        if key not in heads:
            raise PenstockError(
                ErrorCode.UNKNOWN_PARTITION,
                f"partition {key.partition} of topic {topic_name!r} does not exist: it has 0 to {topic.partitions - 1}",
            )
        seen = leases.get(key) or Lease(topic=topic.name, partition=key)
        offset = _new_offset(to, key.partition, seen.offset, heads[key], at_time)
        if not is_dry_run:
            _reset(broker, group, topic.name, seen, offset)
        return ResetOffset(old_offset=seen.offset, new_offset=offset)

    results = broker.parallel.map(reset_one, keys)
    if not is_dry_run:
        _expel_all(broker, group)
    return [(key.partition, result) for key, result in zip(keys, results, strict=True)]


def _at_time(broker: Broker, topic_name: str, to: ResetTo) -> Mapping[Partition, Offset | None]:
    if to.timestamp_ms is None:
        return {}
    return {each.partition: each.offset for each in listed(list_offsets(broker, topic_name, to.timestamp_ms, None))}


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
        return Offset(min(high, max(low, old + to.shift_by)))
    assert to.offsets is not None
    offset = to.offsets[partition]
    if not low <= offset <= high:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of partition {partition} lies outside of its log, from {low} to {high}",
            log_start_offset=low,
            high_watermark=high,
        )
    return Offset(offset)


def _reset(broker: Broker, group: GroupName, topic: TopicName, seen: Lease, offset: Offset) -> None:
    key = seen.partition
    attempts = 0
    while True:
        committed = CommittedOffset(
            topic=topic, partition=key, offset=offset, metadata="", committed_at_ms=broker.clock.now_ms()
        )
        try:
            epoch = next_epoch(seen, drawn_number(broker.chance.random_bytes(EPOCH_BYTES)))
            broker.groups.reset_lease(group, seen, committed, epoch)
        except PenstockError as error:
            attempts += 1
            if attempts == _ATTEMPTS_MAX or error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            seen = broker.groups.find_leases(group, [key]).get(key) or Lease(topic=topic, partition=key)
        else:
            return


def _expel_all(broker: Broker, group: GroupName) -> None:
    """Raises CONCURRENT_UPDATE if some member's heartbeats come faster."""
    for _ in range(_ATTEMPTS_MAX):
        members = broker.memberships.members(group)
        removed = broker.parallel.map(lambda member: broker.memberships.remove_member(group, member), members)
        if all(each is True for each in removed):
            return
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"the offsets were reset, and members of group {group} go on from where they were: stop them, or try again",
        maybe_applied=True,
    )
