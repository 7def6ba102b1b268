"""Acceptances of shared records in a transaction: they become finished when its records become visible, or not at all.

Only a lock that still holds counts. Where a single acknowledgement would answer DONE, a transaction is refused: another
consumer may have finished the records, with an output of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_ENTRIES_MAX
from penstock_core.log.timer import DueSecond, Timer, check_due, is_announceable, is_past, past_due, second_of
from penstock_core.share.acknowledge import AckResult, plan_acknowledge
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.storage.transaction_items import StagedRef
from penstock_core.transaction import ShareCommit, lock_lost
from penstock_service.instance.instance import Instance
from penstock_service.records.append import PartitionBatches
from penstock_service.records.schedule import DelayedBatches
from penstock_service.records.timer_room import reserve_room, send_messages, switch_on
from penstock_service.share.acknowledge import AckEntry, by_partition, group_of
from penstock_service.share.share_partitions import wake_workers
from penstock_service.transactions.begin_transactions import TransactionPart

CheckedEntry: TypeAlias = PartitionBatches | DelayedBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Records of a share group to accept: `entry` is of type accept."""

    group: str
    entry: AckEntry


def share_commits(instance: Instance, acceptances: Sequence[Acceptance]) -> list[ShareCommit]:
    """One update for each share item. One read of each group that is not remembered, and one of all states.

    Raises UNKNOWN_SHARE_GROUP, LOCK_LOST if a lock does not hold all its records any more, and TRANSACTION_TOO_LARGE
    for more than about `SHARE_ENTRIES_MAX` locks of one partition.
    """
    by_group: dict[str, list[AckEntry]] = {}
    for each in acceptances:
        by_group.setdefault(each.group, []).append(each.entry)
    wanted: list[tuple[ShareGroup, ShareKey, list[AckEntry]]] = []
    for name, entries in by_group.items():
        group = group_of(instance, name, entries)
        for key, places in by_partition(group, entries).items():
            if key is None:
                raise PenstockError(
                    ErrorCode.LOCK_LOST,
                    f"share group {name!r} does not read topic {entries[places[0]].topic!r}: nothing was committed",
                )
            wanted.append((group, key, [entries[place] for place in places]))
    states = instance.stores.share.find_states([key for _, key, _ in wanted]) if wanted else {}
    return [_commit(instance, group, key, entries, states.get(key)) for group, key, entries in wanted]


def wake_after(instance: Instance, acceptances: Sequence[Acceptance], commits: Sequence[ShareCommit]) -> None:
    """Wake consumers that wait for the keys of accepted records. One read of the states, if a group orders by key."""
    names = {each.group for each in acceptances}
    groups = [instance.share_group_cache.get(name) for name in names]
    ids = {group.share_group_id for group in groups if group.config.is_by_key}
    keys = [each.key for each in commits if each.key.share_group_id in ids]
    if keys and instance.stores.wake_ups.place is not None:
        states = instance.stores.share.find_states(keys)
        wake_workers(instance, [key for key, state in states.items() if state.waiter_ms is not None])


def _commit(
    instance: Instance, group: ShareGroup, key: ShareKey, entries: Sequence[AckEntry], state: ShareState | None
) -> ShareCommit:
    if state is None:
        raise lock_lost(key)
    acknowledgements = [entry.acknowledgement for entry in entries]
    plan = plan_acknowledge(state, group.config, acknowledgements, instance.clock.now_ms())
    if plan.planned < len(entries):
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"a transaction over {len(entries)} locks of partition {key.partition_key}: about {SHARE_ENTRIES_MAX} at "
            "most. Nothing was written: commit more often",
            limit=SHARE_ENTRIES_MAX,
        )
    if plan.update is None or any(answer.result is not AckResult.OK for answer in plan.answers):
        raise lock_lost(key)
    return ShareCommit(key=key, update=replace(plan.update, takes_waiter=False))


def staged_timer(topic: str, timer: Timer) -> StagedRef:
    """What a stage keeps of a timer that the commit will put."""
    return StagedRef(topic=topic, key=timer.key, ref=timer.ref, place=timer.place, crc=timer.crc)


def timers_of(instance: Instance, staged: Sequence[StagedRef]) -> list[Timer]:
    """The timers that the commit puts, with room reserved in their minutes. None, and no call, without delayed refs.

    Costs what `reserve_room` costs for each. Raises INVALID_REQUEST for a due time that is too far ahead, or past by
    the time of the commit, and TOO_MANY_TIMERS.
    """
    now_ms = instance.clock.now_ms()
    timers: list[Timer] = []
    for each in staged:
        if each.place is None:
            continue
        if not timers:
            switch_on(instance)
        check_due(each.place.due_ms, now_ms)
        if is_past(each.place.due_ms, now_ms):
            raise past_due(each.place.due_ms, now_ms)
        reserve_room(instance, each.key, each.place.due_ms)
        is_announced = is_announceable(each.place.due_ms, now_ms)
        timers.append(Timer(key=each.key, place=each.place, ref=each.ref, crc=each.crc, is_announced=is_announced))
    return timers


def announce_again(instance: Instance, last: TransactionPart, stage_count: int) -> None:
    """Sends the messages that an earlier try of the commit may not have sent. One query if there were stages."""
    now_ms = instance.clock.now_ms()
    found: set[DueSecond] = set()
    for entry in last.entries:
        if entry.timer is not None and is_announceable(entry.timer.due_ms, now_ms):
            try:
                _, key = instance.topic_cache.get_partition(entry.topic, entry.partition)
            except PenstockError:
                continue  # the topic is gone, or cannot be read: the run each minute looks after its timers
            found.add(second_of(entry.timer.due_ms, key))
    stages = instance.stores.transactions.stages(last.producer, last.number, last.nonce) if stage_count else []
    for each in (part for staged in stages for part in staged):
        if each.place is not None and is_announceable(each.place.due_ms, now_ms):
            found.add(second_of(each.place.due_ms, each.key))
    send_messages(instance, sorted(found))
