"""List share groups, and describe one: what is in flight in each partition, what is available, what waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset, TopicName
from penstock_core.limits import HEADS_AT_ONCE, SHARE_GROUP_LIST_MAX
from penstock_core.log.index import Head
from penstock_core.pages import show_all, shown_page
from penstock_core.share.read_first import NO_KEY
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig
from penstock_core.share.share_state import Holder, ShareKey, ShareState, holders_of
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
    - `holders` are the consumers with locks, and `holders_left_out` counts those beyond `SHARE_HOLDERS_MAX`.
    - `oldest_age_ms` is the age of the oldest of all these, None if there are none. `record_age_ms` tells from when
      it counts.
    """

    topic: TopicName
    key: ShareKey
    start_offset: Offset
    position: Offset
    in_flight: int
    available: int
    waiting: int
    holders: Sequence[Holder]
    holders_left_out: int
    oldest_age_ms: int | None

    @property
    def lag(self) -> int:
        """The records that are not finished."""
        return self.in_flight + self.available + self.waiting


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

    One read of the group, one of each topic that is not remembered, two reads for each 100 partitions, and one query
    for each whose oldest record is not in the tail. Raises INVALID_NAME and UNKNOWN_SHARE_GROUP.
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


def _partition(
    instance: Instance, group: ShareGroup, topic: TopicName, key: ShareKey, head: Head, state: ShareState | None
) -> ShareGroupPartition:
    now_ms = instance.clock.now_ms()
    state = state or ShareState(position=Offset(0))
    in_flight, available, waiting = _counts(group.config, head, state, now_ms)
    available += head.count_from(state.position)
    start = Offset(max(state.start_offset, head.log_start_offset))
    holders, left_out = holders_of(state, head.log_start_offset, now_ms)
    return ShareGroupPartition(
        topic=topic,
        key=key,
        start_offset=start,
        position=Offset(max(state.position, head.log_start_offset)),
        in_flight=in_flight,
        available=available,
        waiting=waiting,
        holders=holders,
        holders_left_out=left_out,
        oldest_age_ms=record_age_ms(instance, key.partition_key, head, start),
    )


def _counts(config: ShareGroupConfig, head: Head, state: ShareState, now_ms: int) -> tuple[int, int, int]:
    """The records that are locked, those that may be acquired, and those that wait, of all that were handed out."""
    expired = ((0, head.log_start_offset),)
    leaders = _leaders(state, head)
    in_flight = available = waiting = 0
    for lock_id, lock in state.locks.items():
        held = lock.held.minus(expired)
        is_due = available_ms(config, lock_id, lock) <= now_ms and not is_last_delivery(config, lock.deliveries)
        if lock.until_ms > now_ms:
            in_flight += held.count
        elif is_due:
            available += _leading(held, leaders)
            waiting += held.count - _leading(held, leaders)
        else:
            waiting += held.count
    for wait in state.waits.values():
        records = wait.records.minus(expired)
        is_available = wait.available_ms <= now_ms and not wait.is_terminal
        leading = _leading(records, leaders) if is_available else 0
        available += leading
        waiting += records.count - leading
    return in_flight, available, waiting


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
