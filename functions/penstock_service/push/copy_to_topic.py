"""Copy to a topic: a subscription whose target is another topic of the same Penstock.

One transaction appends the copies and moves the subscription's offset over the records. So each is copied exactly once.
A record that came in a circle of copies is passed over, and the metric `push_loops` counts it.
"""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.log.topic import Topic
from penstock_core.push.batch import Failed, Failure, PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState, commit, skip
from penstock_core.push.targets.target import TOO_LARGE, TopicTarget, copied
from penstock_core.records.codec import NewRecord
from penstock_service.index.heads import move_again_if_closed
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.lane_work import LaneWork, move_with_state, overtaken
from penstock_service.push.set_aside import set_aside
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.share.dead_letters.move_records import MovedRecords
from penstock_service.share.dead_letters.place_records import fitting, place_records, places_keys


def copy_to_topic(
    work: LaneWork,
    place: tuple[TopicName, DeliveryKey],
    state: DeliveryState,
    records: Sequence[PushRecord],
    end: Offset,
) -> DeliveryState | Failed:
    """The state behind the records, which lie below `end`, or behind as many as fit into one batch.

    One put per zone, one transaction, one read of the heads; all again after a refusal by a closed partition. A topic
    that is missing is a target that is away.
    """
    instance, target = work.instance, work.subscription.target
    assert isinstance(target, TopicTarget)
    window = UpdateWindow.open(instance.clock)  # before the topic is read, whose partitions the copies go to
    now_ms = instance.clock.now_ms()
    copies = [copied(each.record, now_ms) for each in records]

    def copy() -> tuple[DeliveryState, int] | Failed:
        topic = instance.topic_cache.find(target.topic)
        if topic is None:
            return _missing(target)
        by_key = places_keys(instance, topic, place[0])
        moved, count = fitting(copies, lambda some: _placed(topic, some, place[1].partition, by_key=by_key))
        if moved is None:
            return set_aside(work, place, state, records[0], f"{TOO_LARGE}: no batch holds a copy"), 0
        behind = end if count == len(records) else Offset(records[count].record.offset)
        if not moved:
            return _pass_over(instance, place[1], skip(state, behind)), count
        new = commit(state, behind, window.opened.wall_ms, instance.clock.now_ms())
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
