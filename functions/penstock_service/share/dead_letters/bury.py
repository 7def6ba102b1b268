"""Bury: move records to the dead-letter topic of their share group, each exactly once.

One transaction appends them there and takes them out of the share item. Its condition is that the item's entries are as
they were read. So of two that bury the same records, one is refused, and finds them gone.

```
1 read of the records    1 put per zone    1 transaction: head of the dead-letter topic + share item
```
place_records.py tells which partitions take them, so that dead letters of one key stay in order. If the topic is
missing, all wait for the longest pause. A record that cannot be read waits so alone. A log line that an alarm watches
tells of both. A record that is too large for any batch leaves a letter that names it. A record that was buried too
often goes round in a circle: it is finished, and a metric counts it.

Records that the group's filter does not take are finished, and leave no dead letter: their lock may have ended before
any filter saw them. A record that a client rejected was handed out, so it goes to the topic whatever the filter is now.
A record whose time is over leaves no dead letter in any case: it is finished, and counted as expired.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import matches
from penstock_core.limits import READ_DECODED_BYTES_MAX
from penstock_core.log.topic import Topic
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.bury import Burial, BurialCause, Movable, has_burials, plan_bury, plan_wait_longer
from penstock_core.share.dead_letter import (
    UNDECODABLE,
    DeadLetterOrigin,
    dead_letter,
    undecodable_letter,
)
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.reasons import reason_of
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareState
from penstock_core.transaction import ShareCommit
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.append import is_head_gone
from penstock_service.share.batches.decode_batches import DecodedRecords, decode_batches, expired_records, filter_of
from penstock_service.share.batches.read_batches import FoundBatches, WantedRecords, read_batches
from penstock_service.share.dead_letters.move_records import move_records
from penstock_service.share.dead_letters.place_records import Letter, PlacedLetters, place_letters, places_keys
from penstock_service.share.share_partitions import SharePartition, count_expired, wake_workers


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
        _report_stuck(instance, group, partition, str(stuck))
        return _wait_longer(instance, group, partition, state)
    except PenstockError as error:
        instance.telemetry.log(
            "burials_failed", group=group.name, partition=str(partition.key.partition_key), error=str(error)
        )
        return False


def _bury(instance: Instance, group: ShareGroup, partition: SharePartition) -> bool:
    window = UpdateWindow.open(instance.clock)
    name = group.config.dead_letter_topic or ""

    def move_letters() -> tuple[bool, _Portion]:
        portion = _portion(instance, group, partition, _target(instance, group))
        if portion.update is None:
            return False, portion
        if not portion.letters.moved:  # retention or compaction has removed them all, or the filter takes none
            return instance.stores.share.update(partition.key, portion.update).is_applied, portion
        share = ShareCommit(key=partition.key, update=portion.update)
        is_done = move_records(instance, portion.letters.moved, share, window).is_applied
        if group.config.is_by_key:
            wake_workers(instance, [partition.key])  # a transaction does not tell if somebody waits for the keys
        return is_done, portion

    try:
        is_done, portion = move_again_if_closed(instance, [name], move_letters)
    except PenstockError as error:
        if is_head_gone(error):
            instance.topic_cache.forget(name)
            raise _Stuck(f"topic {name!r} was deleted") from error
        raise
    if is_done:
        portion.letters.report(instance, "share_records_dead_lettered")
        count_expired(instance, 0 if portion.update is None else portion.update.expired)
    return is_done


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeadRecords:
    """The records of a plan as they were read: their letters, those that are finished without one, and the stuck.

    Those of `expired` are among the finished. All others come with the next burial.
    """

    letters: Sequence[Letter]
    finished: Ranges
    stuck: Ranges
    expired: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class _Portion:
    """The letters of one transaction, and the update with them."""

    letters: PlacedLetters
    update: ShareUpdate | None


def _portion(instance: Instance, group: ShareGroup, partition: SharePartition, target: Topic) -> _Portion:
    """As many records as can be read and moved at once. The update has each of them, or they would move again."""
    assert partition.state is not None
    now_ms = instance.clock.now_ms()
    read = _read(instance, group, partition, plan_bury(partition.state, group.config, now_ms).burials)
    by_key = places_keys(instance, target, partition.topic)
    letters = read.letters
    while True:
        placed = place_letters(target, letters, partition.key.partition, by_key=by_key)
        done = normalized((*read.finished, *(span for each in letters[: placed.count] for span in each.ranges)))
        movable = Movable(moved=done, stuck=read.stuck)
        plan = plan_bury(partition.state, group.config, now_ms, movable=movable)
        # An entry of which a part stays takes more room in the update than the first plan gave it.
        fitting = _within(letters[: placed.count], plan.burials)
        if len(fitting) == placed.count:
            moved = normalized(span for each in plan.burials for span in each.records.ranges)
            expired = RecordSet(read.expired).only(moved).count
            update = None if plan.update is None else replace(plan.update, expired=expired)
            return _Portion(letters=placed, update=update)
        letters = fitting


def _within(letters: Sequence[Letter], burials: Sequence[Burial]) -> Sequence[Letter]:
    """The first letters whose records the burials have."""
    gone = normalized(span for each in burials for span in each.records.ranges)
    return [*takewhile(lambda each: not RecordSet(each.ranges).minus(gone).ranges, letters)]


def _target(instance: Instance, group: ShareGroup) -> Topic:
    name = group.config.dead_letter_topic
    topic = None if name is None else instance.topic_cache.find(name)
    if topic is None:
        raise _Stuck(f"topic {name!r} does not exist: create it, or name another one")
    return topic


def _read(instance: Instance, group: ShareGroup, partition: SharePartition, burials: Sequence[Burial]) -> _DeadRecords:
    """Read the records, within the budgets of one read."""
    ranges = normalized(span for each in burials for span in each.records.ranges)
    head = partition.head
    if ranges and ranges[-1][1] > head.next_offset:
        head = instance.stores.log.heads([partition.key.partition_key]).get(partition.key.partition_key, head)
    [found] = read_batches(instance, [WantedRecords(key=partition.key.partition_key, head=head, ranges=ranges)])
    if found.unreadable:
        _report_stuck(instance, group, partition, f"offset {found.unreadable[0][0]} cannot be read: {found.error}")
    wanted = RecordSet(ranges).minus(found.removed).ranges
    decoded = decode_batches(found.batches, wanted, DecodeBudget(READ_DECODED_BYTES_MAX))
    letters: list[Letter] = []
    passed: list[Range] = []  # the records that the filter does not take
    expired: list[Range] = []
    now_ms = instance.clock.now_ms()
    over = expired_records(found.batches, decoded.records, now_ms)
    for burial in burials:
        origin = _origin(group, partition, burial, now_ms)
        letters += _undecodable(burial, origin, found, decoded)
        wanted_now = None if burial.cause is BurialCause.REJECTED else filter_of(group.config)
        offsets = {*burial.records.offsets()}
        for record in (each for each in decoded.records if each.offset in offsets):
            place = (record.offset, record.offset + 1)
            if wanted_now is not None and not matches(wanted_now, record.headers):
                passed.append(place)
                continue
            if record.offset in over:
                expired.append(place)
                continue
            its = replace(origin, offset=record.offset, reason=_reason(partition, burial, record.offset))
            letters.append(Letter(origin=its, ranges=(place,), record=dead_letter(record, its)))
    finished = normalized((*found.removed, *decoded.removed, *passed, *expired))
    return _DeadRecords(letters=letters, finished=finished, stuck=found.unreadable, expired=normalized(expired))


def _reason(partition: SharePartition, burial: Burial, offset: int) -> str:
    """What a client said at last: a record whose last lock ended without a word has the reason of a release before."""
    if burial.reason or burial.cause is BurialCause.REJECTED or partition.state is None:
        return burial.reason or burial.cause.value
    earlier = reason_of(partition.state.reasons, offset)
    return f"{burial.cause.value}, earlier: {earlier}" if earlier else burial.cause.value


def _origin(group: ShareGroup, partition: SharePartition, burial: Burial, now_ms: int) -> DeadLetterOrigin:
    """The origin of the burial's first record."""
    return DeadLetterOrigin(
        topic=partition.topic,
        partition=partition.key.partition,
        offset=burial.records.start,
        group=group.name if group.subscription is None else None,
        subscription=group.subscription,
        reason=_reason(partition, burial, burial.records.start),
        deliveries=burial.deliveries,
        time_ms=now_ms,
    )


def _undecodable(
    burial: Burial, origin: DeadLetterOrigin, found: FoundBatches, decoded: DecodedRecords
) -> Iterator[Letter]:
    """One letter for each batch that cannot be decoded."""
    bad = burial.records.only(decoded.undecodable)
    for batch in found.batches:
        mine = bad.only(((batch.base_offset, batch.next_offset),))
        if mine.ranges:
            its = replace(origin, offset=mine.start, reason=UNDECODABLE)
            yield Letter(origin=its, ranges=mine.ranges, record=undecodable_letter(bytes(batch.data), its))


def _report_stuck(instance: Instance, group: ShareGroup, partition: SharePartition, why: str) -> None:
    instance.telemetry.log(
        "dead_letters_stuck",
        group=group.name,
        partition=str(partition.key.partition_key),
        topic=group.config.dead_letter_topic,
        error=why,
    )


def _wait_longer(instance: Instance, group: ShareGroup, partition: SharePartition, state: ShareState) -> bool:
    update = plan_wait_longer(state, group.config, instance.clock.now_ms())
    return update is not None and instance.stores.share.update(partition.key, update).is_applied
