"""Bury: move records that a target cannot handle to the dead-letter topic of their subscription, each exactly once.

One transaction appends them there and moves the subscription's offset over them. If the topic is missing, the
partition rests for the longest pause, and a log line that an alarm watches tells of it. A record that is too large for
any batch leaves a letter that names it. A record that was buried too often goes round in a circle, and is passed over.
"""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.push.attempt import pause_ms
from penstock_core.push.batch import PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState, move, pause, skip
from penstock_core.share.bury import BurialCause
from penstock_core.share.dead_letter import DeadLetterOrigin, dead_letter
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.lane_work import LaneWork, move_with_state, overtaken
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.share.dead_letters.place_records import Letter, PlacedLetters, place_letters, places_keys

_LONGEST = 1_000  # failures: more than any pause doubles for


class _Stuck(Exception):  # noqa: N818 - the state of the records, which is no error of the caller
    """The dead-letter topic cannot take the records now."""


def bury(
    work: LaneWork,
    place: tuple[TopicName, DeliveryKey],
    state: DeliveryState,
    records: Sequence[PushRecord],
    end: Offset,
) -> DeliveryState:
    """The state behind the records, which lie below `end`, or behind as many as fit into one batch.

    One put per zone, one transaction, one read of the heads; all again after a refusal by a closed partition. If the
    topic cannot take them, one write of the pause.
    """
    instance, name = work.instance, work.subscription.config.dead_letter_topic
    window = UpdateWindow.open(instance.clock)
    letters = [_letter(work, place, state, each) for each in records]

    def move_letters() -> tuple[DeliveryState, PlacedLetters]:
        topic = None if name is None else instance.topic_cache.find(name)
        if topic is None:
            raise _Stuck(f"topic {name!r} does not exist: create it, or name another one")
        by_key = places_keys(instance, topic, place[0])
        placed = place_letters(topic, letters, place[1].partition, by_key=by_key)
        behind = end if placed.count == len(records) else Offset(records[placed.count].record.offset)
        if placed.moved:
            after = move(state, behind, placed.count - placed.loops)
            return move_with_state(instance, place[1], placed.moved, after, window), placed
        after = skip(state, behind)
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
