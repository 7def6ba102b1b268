"""Bury: move records that a target cannot handle to the dead-letter topic of their subscription, each exactly once.

One transaction appends them there and moves the subscription's offset over them. If the topic is missing, the
partition rests for the longest pause, and a log line that an alarm watches tells of it. A record that is too large for
any batch leaves a letter that names it. A record that was buried too often goes round in a circle, and is passed over.

Set aside: a record that no delivery to its target can hold goes to the dead letters at once, or is passed over.

Copy to a topic: a subscription whose target is another topic of the same Penstock.

One transaction appends the copies and moves the subscription's offset over the records. So each is copied exactly once.
A record that came in a circle of copies is passed over, and the metric `push_loops` counts it.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.log.topic import Topic
from penstock_core.push.attempt import pause_ms
from penstock_core.push.batch import Failed, Failure, PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble, commit, move, pause, skip
from penstock_core.push.targets.target import TOO_LARGE, TopicTarget, copied
from penstock_core.records.codec import NewRecord
from penstock_core.share.bury import BurialCause
from penstock_core.share.dead_letter import DeadLetterOrigin, dead_letter
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.lane_work import LaneWork, PushPortion, move_with_state, overtaken
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.share.dead_letters.move_records import MovedRecords
from penstock_service.share.dead_letters.place_records import (
    Letter,
    PlacedLetters,
    fitting,
    place_letters,
    place_records,
    places_keys,
)

_LONGEST = 1_000  # failures: more than any pause doubles for


class _Stuck(Exception):  # noqa: N818 - the state of the records, which is no error of the caller
    """The dead-letter topic cannot take the records now."""


def bury(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, portion: PushPortion
) -> DeliveryState:
    """The state behind the records of the portion, or behind as many as fit into one batch.

    One put per zone, one transaction, one read of the heads; all again after a refusal by a closed partition. If the
    topic cannot take them, one write of the pause.
    """
    instance, name = work.instance, work.subscription.config.dead_letter_topic
    window = UpdateWindow.open(instance.clock)
    letters = [_letter(work, place, state, each) for each in portion.records]

    def move_letters() -> tuple[DeliveryState, PlacedLetters]:
        topic = None if name is None else instance.topic_cache.find(name)
        if topic is None:
            raise _Stuck(f"topic {name!r} does not exist: create it, or name another one")
        by_key = places_keys(instance, topic, place[0])
        placed = place_letters(topic, letters, place[1].partition, by_key=by_key)
        behind = portion.behind(placed.count)
        if placed.moved:
            after = _counted(move(state, behind, placed.count - placed.loops), portion)
            return move_with_state(instance, place[1], placed.moved, after, window), placed
        after = _counted(skip(state, behind), portion)
        if instance.stores.push.put_delivery(place[1], after) != after:
            raise overtaken(place[1])
        return after, placed

    try:
        buried, placed = move_again_if_closed(instance, [] if name is None else [name], move_letters)
    except _Stuck as stuck:
        return _wait(work, place[1], state, str(stuck))
    except PenstockError as error:
        if name is None or not (is_head_gone(error) or is_head_closed(error)):
            raise
        instance.topic_cache.forget(name)
        return _wait(work, place[1], state, f"topic {name!r} was {'deleted' if is_head_gone(error) else 'altered'}")
    placed.report(instance, "push_dead_lettered")
    return buried


def _counted(after: DeliveryState, portion: PushPortion) -> DeliveryState:
    """The state with the expired records that its offset has passed."""
    return replace(after, expired=after.expired + portion.expired_below(after.offset))


def _letter(work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, each: PushRecord) -> Letter:
    trouble = state.trouble
    origin = DeadLetterOrigin(
        topic=place[0],
        partition=place[1].partition,
        offset=each.record.offset,
        subscription=work.subscription.name,
        reason=(trouble.error if trouble else "") or BurialCause.DELIVERIES.value,  # deliveries that died tell nothing
        deliveries=0 if trouble is None else trouble.attempts,
        time_ms=work.instance.clock.now_ms(),
    )
    place_of_record = (each.record.offset, each.record.offset + 1)
    return Letter(origin=origin, ranges=(place_of_record,), record=dead_letter(each.record, origin))


def _wait(work: LaneWork, key: DeliveryKey, state: DeliveryState, why: str) -> DeliveryState:
    subscription, instance = work.subscription, work.instance
    instance.telemetry.log(
        "push_dead_letters_stuck",
        subscription=subscription.name,
        partition=str(key.partition_key),
        topic=subscription.config.dead_letter_topic,
        error=why,
    )
    waiting = pause(state, instance.clock.now_ms() + pause_ms(subscription.config, _LONGEST))
    if instance.stores.push.put_delivery(key, waiting) != waiting:
        raise overtaken(key)
    return waiting


def set_aside(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, portion: PushPortion, why: str
) -> DeliveryState:
    """The state behind the only record of the portion. Costs what `bury` costs; one write without a topic for it.

    The log line `push_too_large` tells of it, and rings an alarm.
    """
    log_too_large(work, portion.records[0], why)
    if work.subscription.config.dead_letter_topic is not None:
        told = Trouble(first_failed_ms=work.instance.clock.now_ms(), range_end=portion.end, error=why)
        return bury(work, place, replace(state, trouble=told), portion)
    new = _counted(skip(state, portion.end), portion)
    if work.instance.stores.push.put_delivery(place[1], new) != new:
        raise overtaken(place[1])
    return new


def log_too_large(work: LaneWork, record: PushRecord, why: str) -> None:
    """Tell which record the target never gets."""
    work.instance.telemetry.log(
        "push_too_large",
        subscription=work.subscription.name,
        partition=str(record.key),
        offset=record.record.offset,
        error=why,
    )


def copy_to_topic(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, portion: PushPortion
) -> DeliveryState | Failed:
    """The state behind the records of the portion, or behind as many as fit into one batch.

    One put per zone, one transaction, one read of the heads; all again after a refusal by a closed partition. A topic
    that is missing is a target that is away.
    """
    instance, target = work.instance, work.subscription.target
    assert isinstance(target, TopicTarget)
    window = UpdateWindow.open(instance.clock)  # before the topic is read, whose partitions the copies go to
    now_ms = instance.clock.now_ms()
    copies = [copied(each.record, now_ms) for each in portion.records]

    def copy() -> tuple[DeliveryState, int] | Failed:
        topic = instance.topic_cache.find(target.topic)
        if topic is None:
            return _missing(target)
        by_key = places_keys(instance, topic, place[0])
        moved, count = fitting(copies, lambda some: _placed(topic, some, place[1].partition, by_key=by_key))
        if moved is None:
            first = portion.below(Offset(portion.records[0].record.offset + 1))
            return set_aside(work, place, state, first, f"{TOO_LARGE}: no batch holds a copy"), 0
        behind = portion.behind(count)
        if not moved:
            return _pass_over(instance, place[1], _counted(skip(state, behind), portion)), count
        new = _counted(commit(state, behind, window.opened.wall_ms, instance.clock.now_ms()), portion)
        return move_with_state(instance, place[1], moved, new, window), count

    try:
        done = move_again_if_closed(instance, [target.topic], copy)
    except PenstockError as error:
        if not (is_head_gone(error) or is_head_closed(error)):
            raise
        instance.topic_cache.forget(target.topic)
        return _missing(target) if is_head_gone(error) else _altered(target)
    if isinstance(done, Failed):
        return done
    new, count = done
    loops = sum(each is None for each in copies[:count])
    if count > loops:
        instance.telemetry.count("records_pushed", count - loops)
    if loops:
        instance.telemetry.count("push_loops", loops)
    return new


def _pass_over(instance: Instance, key: DeliveryKey, state: DeliveryState) -> DeliveryState:
    """The state behind records of which none is copied. One write."""
    if instance.stores.push.put_delivery(key, state) != state:
        raise overtaken(key)
    return state


def _placed(
    topic: Topic, copies: Sequence[NewRecord | None], number: int, *, by_key: bool
) -> Sequence[MovedRecords] | None:
    return place_records(topic, [each for each in copies if each is not None], number, by_key=by_key)


def _altered(target: TopicTarget) -> Failed:
    return Failed(failure=Failure.AWAY, error=f"topic {target.topic!r} has fewer writable partitions since")


def _missing(target: TopicTarget) -> Failed:
    return Failed(failure=Failure.AWAY, error=f"topic {target.topic!r} does not exist: create it")
