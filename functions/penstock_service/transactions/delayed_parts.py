"""Delayed records of a transaction: the timers that its commit puts, and the messages that it owes."""

from collections.abc import Sequence
from typing import TypeAlias

from penstock_core.errors import PenstockError
from penstock_core.log.timer import DueSecond, Timer, check_due, is_announceable, is_past, past_due, second_of
from penstock_core.storage.transactions.transaction_stage_item import StagedRef
from penstock_service.instance.instance import Instance
from penstock_service.records.append import PartitionBatches
from penstock_service.records.schedule import DelayedBatches
from penstock_service.records.timer_messages import send_messages
from penstock_service.records.timer_room import reserve_room, switch_on
from penstock_service.transactions.transaction_part import TransactionPart

CheckedEntry: TypeAlias = PartitionBatches | DelayedBatches


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
