"""List share groups, and describe one: what is in flight in each partition, what is available, what waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.limits import HEADS_AT_ONCE, SHARE_GROUP_LIST_MAX
from penstock_core.log.index import Head
from penstock_core.pages import show_all, shown_page
from penstock_core.share.read_first import NO_KEY
from penstock_core.share.reasons import reason_of
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig
from penstock_core.share.share_state import Holder, ShareKey, ShareState, holders_of, name_of
from penstock_core.share.waits import available_ms, is_last_delivery
from penstock_service.index.reader import record_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.share.share_partitions import partitions_of, states_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupPartition:
    """One partition of a share group.

    - All records below `start_offset` are finished, and those from `position` on were never handed out.
    - `in_flight` records are locked. `available` ones may be acquired now, and all fresh ones count among them.
      `waiting` ones may be later, are behind another one of their key, or wait for the dead-letter topic. Compaction
      may have removed some of them.
    - `passed_over` of them gave way to records of other tenants or keys, and were never handed out. With fair sharing,
      the record at `passed_over_offset`, the first one, tells a tenant that keeps the workers busy.
    - `expired` counts the records that were finished because their time was over, since the group began.
    - `holders` are the consumers with locks, and `holders_left_out` counts those beyond `SHARE_HOLDERS_MAX`.
    - `oldest_age_ms` is the age of the oldest of all these, None if there are none. `record_age_ms` tells from when
      it counts. `waiting_age_ms` is that of the oldest one that is not locked.
    """

    topic: TopicName
    key: ShareKey
    start_offset: Offset
    position: Offset
    in_flight: int
    available: int
    waiting: int
    passed_over: int
    passed_over_offset: Offset | None
    expired: int
    holders: Sequence[Holder]
    holders_left_out: int
    oldest_age_ms: int | None
    waiting_age_ms: int | None

    @property
    def lag(self) -> int:
        """The records that are not finished."""
        return self.in_flight + self.available + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRecordState:
    """One record as the group has it.

    - `state` is "finished", "locked", "available" or "waiting".
    - `deliveries` counts how often it was handed out, this time included. It is None for a finished record, of which
      the group keeps nothing else.
    - `consumer` is the end of the name of the lock's holder, empty for one without a name.
    - `until_ms` is when the lock ends, or from when a waiting record may be acquired: the past, if an earlier record
      of its key holds it up. None for other states.
    - `is_dead` says that it waits for its move to the dead-letter topic.
    - `reason` is what a client said that rejected it, or released it the last time with a reason.
    """

    state: str
    deliveries: int | None = None
    consumer: str | None = None
    until_ms: int | None = None
    is_dead: bool = False
    reason: str = ""


def list_share_groups(
    instance: Instance, limit: int, after: str, is_shown: Callable[[str], bool] = show_all
) -> tuple[Sequence[ShareGroup], str | None]:
    """Up to `limit` groups whose names sort after `after`, and the `after` of the next page, or None.

    Leaves out those that are not shown. One query for each `SHARE_GROUP_LIST_MAX` or MB that it passes, and one that
    finds the end.
    """

    def read(place: str) -> tuple[Sequence[ShareGroup], str | None]:
        found = instance.stores.share.list_groups(place, SHARE_GROUP_LIST_MAX)
        return found, found[-1].name if found else None

    return shown_page(read, after, limit, lambda group: is_shown(group.name), lambda group: group.name)


def describe_share_group(
    instance: Instance, name: str, after: str, limit: int
) -> tuple[ShareGroup, Sequence[ShareGroupPartition], str | None]:
    """The group, up to `limit` of its partitions behind `after`, and the `after` of the next page, or None.

    One read of the group, one of each topic that is not remembered, two reads for each 100 partitions, and up to two
    queries for each whose oldest record is not in the tail. Raises INVALID_NAME and UNKNOWN_SHARE_GROUP.
    """
    group = instance.share_group_cache.read_through(name)
    partitions = partitions_of(instance, group)
    places = {place_of(topic, key): index for index, (topic, key) in enumerate(partitions)}
    begin = places.get(after, -1) + 1
    chosen = partitions[begin : begin + limit]
    found: list[ShareGroupPartition] = []
    for start in range(0, len(chosen), HEADS_AT_ONCE):
        found += describe_partitions(instance, group, chosen[start : start + HEADS_AT_ONCE])
    is_last = begin + limit >= len(partitions)
    return group, found, None if is_last else place_of(*chosen[-1])


def place_of(topic: TopicName, key: ShareKey) -> str:
    """The text that stands for a partition in `after`."""
    return f"{topic}#{key.partition}"


def describe_partitions(
    instance: Instance, group: ShareGroup, partitions: Sequence[tuple[TopicName, ShareKey]]
) -> list[ShareGroupPartition]:
    """Up to 100 partitions of the group, without those that are deleted. `describe_share_group` tells the costs."""
    keys = [key for _, key in partitions]
    states = states_of(instance, keys)
    heads = instance.stores.log.heads([key.partition_key for key in keys])
    present = [(topic, key, heads[key.partition_key]) for topic, key in partitions if key.partition_key in heads]
    return instance.executor.map(lambda each: _partition(instance, group, *each, states.get(each[1])), present).all_ok()


def describe_share_record(
    instance: Instance, name: str, topic: str, partition: int, offset: int
) -> tuple[ShareGroup, ShareGroupPartition, ShareRecordState]:
    """The group, one of its partitions, and the state of the record at `offset`. The reads of a description.

    Raises UNKNOWN_SHARE_GROUP, UNKNOWN_PARTITION for a partition that the group does not read, and OFFSET_OUT_OF_RANGE.
    """
    group = instance.share_group_cache.read_through(name)
    chosen = [each for each in partitions_of(instance, group) if (each[0], each[1].partition) == (topic, partition)]
    found = describe_partitions(instance, group, chosen)
    if not found:
        raise PenstockError(
            ErrorCode.UNKNOWN_PARTITION, f"{topic}[{partition}]: share group {name} reads no such partition"
        )
    [key] = [each.key for each in found]
    head = instance.stores.log.heads([key.partition_key])[key.partition_key]
    if not head.log_start_offset <= offset < head.next_offset:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}: {topic}[{partition}] holds [{head.log_start_offset}, {head.next_offset})",
        )
    state = states_of(instance, [key]).get(key) or ShareState(position=Offset(0))
    return group, found[0], _record(group.config, head, state, offset, instance.clock.now_ms())


def _partition(
    instance: Instance, group: ShareGroup, topic: TopicName, key: ShareKey, head: Head, state: ShareState | None
) -> ShareGroupPartition:
    now_ms = instance.clock.now_ms()
    state = state or ShareState(position=Offset(0))
    in_flight, available, waiting_count = _counts(group.config, head, state, now_ms)
    available += head.count_from(state.position)
    start = Offset(max(state.start_offset, head.log_start_offset))
    holders, left_out = holders_of(state, head.log_start_offset, now_ms)
    free = [each.records.start for each in _entries(group.config, head, state, now_ms) if _is_free(each)]
    waiting = Offset(min(free, default=max(state.position, head.log_start_offset)))
    passed = [each.records for each in _entries(group.config, head, state, now_ms) if _is_free(each) and each.is_new]
    oldest_ms = record_age_ms(instance, key.partition_key, head, start)
    return ShareGroupPartition(
        topic=topic,
        key=key,
        start_offset=start,
        position=Offset(max(state.position, head.log_start_offset)),
        in_flight=in_flight,
        available=available,
        waiting=waiting_count,
        passed_over=sum(records.count for records in passed),
        passed_over_offset=Offset(min(records.start for records in passed)) if passed else None,
        expired=state.expired,
        holders=holders,
        holders_left_out=left_out,
        oldest_age_ms=oldest_ms,
        waiting_age_ms=oldest_ms if waiting == start else record_age_ms(instance, key.partition_key, head, waiting),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A lock or a wait, as of now. `is_due`: its records may be acquired, if no earlier one of their key holds them."""

    records: RecordSet
    deliveries: int
    until_ms: int
    is_locked: bool = False
    is_due: bool = False
    is_dead: bool = False
    consumer: str | None = None
    reason: str = ""

    @property
    def is_new(self) -> bool:
        """True if its records were never handed out."""
        return self.deliveries == 0


def _is_free(entry: _Entry) -> bool:
    return not entry.is_locked and bool(entry.records.ranges)


def _entries(config: ShareGroupConfig, head: Head, state: ShareState, now_ms: int) -> Iterator[_Entry]:
    """All records that were handed out and are not finished, without the expired ones."""
    expired = ((0, head.log_start_offset),)
    for lock_id, lock in state.locks.items():
        is_locked, is_dead = lock.until_ms > now_ms, is_last_delivery(config, lock.deliveries)
        free_ms = available_ms(config, lock_id, lock)
        yield _Entry(
            records=lock.held.minus(expired),
            deliveries=lock.deliveries,
            until_ms=lock.until_ms if is_locked else free_ms,
            is_locked=is_locked,
            is_due=free_ms <= now_ms and not is_dead,
            is_dead=is_dead and not is_locked,
            consumer=name_of(lock_id) if is_locked else None,
        )
    for wait in state.waits.values():
        yield _Entry(
            records=wait.records.minus(expired),
            deliveries=wait.deliveries,
            until_ms=wait.available_ms,
            is_due=wait.available_ms <= now_ms and not wait.is_terminal,
            is_dead=wait.is_terminal,
            reason=wait.reason,
        )


def _counts(config: ShareGroupConfig, head: Head, state: ShareState, now_ms: int) -> tuple[int, int, int]:
    """The records that are locked, those that may be acquired, and those that wait, of all that were handed out."""
    leaders = _leaders(state, head)
    in_flight = available = waiting = 0
    for each in _entries(config, head, state, now_ms):
        if each.is_locked:
            in_flight += each.records.count
            continue
        leading = _leading(each.records, leaders) if each.is_due else 0
        available += leading
        waiting += each.records.count - leading
    return in_flight, available, waiting


def _record(config: ShareGroupConfig, head: Head, state: ShareState, offset: int, now_ms: int) -> ShareRecordState:
    """The state of the record at an offset that the partition holds."""
    if offset >= state.position:
        return ShareRecordState(state="available", deliveries=0)
    for each in _entries(config, head, state, now_ms):
        one = each.records.only(((offset, offset + 1),))
        if not one.count:
            continue
        reason = each.reason or reason_of(state.reasons, offset)
        if each.is_locked:
            return ShareRecordState(
                state="locked",
                deliveries=each.deliveries,
                consumer=each.consumer,
                until_ms=each.until_ms,
                reason=reason,
            )
        if each.is_due and _leading(one, _leaders(state, head)):
            return ShareRecordState(state="available", deliveries=each.deliveries, reason=reason)
        return ShareRecordState(
            state="waiting",
            deliveries=each.deliveries,
            until_ms=each.until_ms,
            is_dead=each.is_dead,
            reason=reason,
        )
    return ShareRecordState(state="finished")


def _leaders(state: ShareState, head: Head) -> dict[int, int]:
    """With order by key: the first unfinished offset of each key's hash."""
    first: dict[int, int] = {}
    for records in state.entries():
        for offset, key_hash in records.minus(((0, head.log_start_offset),)).hash_by_offset().items():
            first[key_hash] = min(offset, first.get(key_hash, offset))
    return first


def _leading(records: RecordSet, leaders: Mapping[int, int]) -> int:
    """The number of records that no earlier one of their key holds up."""
    if not records.hashes:
        return records.count
    hashes = records.hash_by_offset()
    return sum(key_hash == NO_KEY or leaders[key_hash] == offset for offset, key_hash in hashes.items())
