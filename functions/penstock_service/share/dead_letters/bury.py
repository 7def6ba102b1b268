"""Bury: move records to the dead-letter topic of their share group, each exactly once.

One transaction appends them there and takes them out of the share item. Its condition is that the item's entries are as
they were read. So of two that bury the same records, one is refused, and finds them gone.

```
1 read of the records    1 put per zone    1 transaction: head of the dead-letter topic + share item
```
place_records.py tells which partitions take them, so that dead letters of one key stay in order. If the topic is
missing, or refuses the records, they wait for the longest pause, and a log line that an alarm watches tells of it.

Records that the group's filter does not take are finished, and leave no dead letter: their lock may have ended before
any filter saw them. A record that a client rejected was handed out, so it goes to the topic whatever the filter is now.
"""

from collections.abc import Iterator, Sequence

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import matches
from penstock_core.limits import DEAD_LETTERS_AT_ONCE, READ_DECODED_BYTES_MAX
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.share.bury import Burial, BurialCause, BuryPlan, has_burials, plan_bury, plan_wait_longer
from penstock_core.share.dead_letter import UNDECODABLE, DeadLetterOrigin, dead_letter, undecodable_letter
from penstock_core.share.record_set import RecordSet, normalized
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareState
from penstock_core.transaction import ShareCommit
from penstock_service.index.open_partitions import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.records.append import is_head_gone
from penstock_service.segments.update_window import UpdateWindow
from penstock_service.share.batches.decode_batches import DecodedRecords, decode_batches
from penstock_service.share.batches.read_batches import FoundBatches, WantedRecords, read_batches
from penstock_service.share.batches.sift import filter_of
from penstock_service.share.dead_letters.move_records import MovedRecords, move_records
from penstock_service.share.dead_letters.place_records import place_records, places_keys
from penstock_service.share.share_partitions import SharePartition
from penstock_service.share.wake_workers import wake_workers

_FEWER = 4


class _Stuck(Exception):  # noqa: N818 - the state of the records, which is no error of the caller
    """The dead-letter topic cannot take the records now."""


def bury(instance: Instance, group: ShareGroup, partition: SharePartition) -> bool:
    """Move up to `DEAD_LETTERS_AT_ONCE` records of the partition. False if nothing was changed.

    Costs a read of the records, one put per zone, one transaction, and a read of the head. Raises nothing for what may
    pass: the next acquire buries them. It raises no error of storage either, but counts it (`burials_failed`).
    """
    state = partition.state
    if state is None or not has_burials(state, group.config, instance.clock.now_ms()):
        return False
    try:
        return _bury(instance, group, partition)
    except _Stuck as stuck:
        instance.telemetry.log(
            "dead_letters_stuck",
            group=group.name,
            partition=str(partition.key.partition_key),
            topic=group.config.dead_letter_topic,
            error=str(stuck),
        )
        return _wait_longer(instance, group, partition, state)
    except PenstockError as error:
        instance.telemetry.log(
            "burials_failed", group=group.name, partition=str(partition.key.partition_key), error=str(error)
        )
        return False


def _bury(instance: Instance, group: ShareGroup, partition: SharePartition) -> bool:
    window = UpdateWindow.open(instance.clock)
    name = group.config.dead_letter_topic or ""

    def move_letters() -> tuple[bool, int]:
        target = _target(instance, group)
        plan, letters, moved = _plan(instance, group, partition, target)
        if plan.update is None:
            return False, 0
        if not moved:  # retention or compaction has removed them all, or the filter takes none
            return instance.stores.share.update(partition.key, plan.update).is_applied, 0
        is_done = move_records(instance, moved, ShareCommit(key=partition.key, update=plan.update), window)
        if group.config.is_by_key:
            wake_workers(instance, [partition.key])  # a transaction does not tell if somebody waits for the keys
        return is_done, letters

    try:
        is_done, letters = move_again_if_closed(instance, [name], move_letters)
    except PenstockError as error:
        if is_head_gone(error):
            instance.topic_cache.forget(name)
            raise _Stuck(f"topic {name!r} was deleted") from error
        raise
    if is_done and letters:
        instance.telemetry.count("share_records_dead_lettered", letters)
    return is_done


def _plan(
    instance: Instance, group: ShareGroup, partition: SharePartition, target: Topic
) -> tuple[BuryPlan, int, Sequence[MovedRecords]]:
    """The plan, for as many records as can be read and moved at once; its dead letters, and their batches."""
    assert partition.state is not None
    by_key = places_keys(instance, target, partition.topic)
    records_max = DEAD_LETTERS_AT_ONCE
    while True:
        plan = plan_bury(partition.state, group.config, instance.clock.now_ms(), records_max)
        letters = _letters(instance, group, partition, plan)
        moved = None
        if letters is not None:
            moved = place_records(target, letters, partition.key.partition, by_key=by_key)
        if letters is not None and moved is not None:
            return plan, len(letters), moved
        if records_max == 1:
            raise _Stuck("a record cannot be read, or it is larger than a batch may be")
        records_max = max(1, records_max // _FEWER)


def _target(instance: Instance, group: ShareGroup) -> Topic:
    name = group.config.dead_letter_topic
    topic = None if name is None else instance.topic_cache.find(name)
    if topic is None:
        raise _Stuck(f"topic {name!r} does not exist: create it, or name another one")
    return topic


def _letters(
    instance: Instance, group: ShareGroup, partition: SharePartition, plan: BuryPlan
) -> list[NewRecord] | None:
    """The dead letters, None if some of the records cannot be read in this call."""
    ranges = normalized(span for each in plan.burials for span in each.records.ranges)
    head = partition.head
    if ranges and ranges[-1][1] > head.next_offset:
        head = instance.stores.log.heads([partition.key.partition_key]).get(partition.key.partition_key, head)
    [found] = read_batches(instance, [WantedRecords(key=partition.key.partition_key, head=head, ranges=ranges)])
    if found.unreadable or found.left_out:
        return None
    wanted = RecordSet(ranges).minus(found.removed).ranges
    decoded = decode_batches(found.batches, wanted, DecodeBudget(READ_DECODED_BYTES_MAX))
    if decoded.left_out:
        return None
    now_ms = instance.clock.now_ms()
    return [
        letter for burial in plan.burials for letter in _letters_of(group, partition, burial, (found, decoded), now_ms)
    ]


def _letters_of(
    group: ShareGroup,
    partition: SharePartition,
    burial: Burial,
    read: tuple[FoundBatches, DecodedRecords],
    now_ms: int,
) -> Iterator[NewRecord]:
    """The dead letters of one burial; one for each batch that cannot be decoded."""
    found, decoded = read

    def origin(offset: int, reason: str) -> DeadLetterOrigin:
        return DeadLetterOrigin(
            topic=partition.topic,
            partition=partition.key.partition,
            offset=offset,
            group=group.name if group.subscription is None else None,
            subscription=group.subscription,
            reason=reason,
            deliveries=burial.deliveries,
            time_ms=now_ms,
        )

    bad = burial.records.only(decoded.undecodable)
    for batch in found.batches:
        mine = bad.only(((batch.base_offset, batch.next_offset),))
        if mine.ranges:
            yield undecodable_letter(bytes(batch.data), origin(mine.start, UNDECODABLE))
    offsets, reason = {*burial.records.offsets()}, burial.reason or burial.cause.value
    wanted = None if burial.cause is BurialCause.REJECTED else filter_of(group.config)
    for record in decoded.records:
        if record.offset in offsets and (wanted is None or matches(wanted, record.headers)):
            yield dead_letter(record, origin(record.offset, reason))


def _wait_longer(instance: Instance, group: ShareGroup, partition: SharePartition, state: ShareState) -> bool:
    update = plan_wait_longer(state, group.config, instance.clock.now_ms())
    return update is not None and instance.stores.share.update(partition.key, update).is_applied
