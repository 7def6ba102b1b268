"""Copy to a topic: a subscription whose target is another topic of the same Penstock.

One transaction appends the copies and moves the subscription's offset over the records. So each is copied exactly once.
A record that came in a circle of copies is passed over, and the metric `push_loops` counts it.
"""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.push.batch import Failed, Failure, PushRecord
from penstock_core.push.delivery import DeliveryState, commit, skip
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.push.targets.hops import copied
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import NewRecord
from penstock_service.push.lane_work import LaneWork, overtaken
from penstock_service.push.move_with_state import move_with_state, same_partition
from penstock_service.records.append import is_head_closed, is_head_gone
from penstock_service.segments.update_window import UpdateWindow
from penstock_service.share.dead_letters.move_records import MovedRecords, encoded

_FEWER = 4


def copy_to_topic(
    work: LaneWork,
    place: tuple[TopicName, DeliveryKey],
    state: DeliveryState,
    records: Sequence[PushRecord],
    end: Offset,
) -> DeliveryState | Failed:
    """The state behind the records, which lie below `end`, or behind as many as fit into one batch.

    One put per zone, one transaction, one read of the head. A topic that is missing is a target that is away.
    """
    instance, target = work.instance, work.subscription.target
    assert isinstance(target, TopicTarget)
    window = UpdateWindow.open(instance.clock)
    topic = instance.topic_cache.find(target.topic)
    if topic is None:
        return _missing(target)
    copies = [copied(each.record) for each in records]
    data, count = _fitting(copies)
    if data is None:
        return Failed(failure=Failure.REFUSAL, error="the record is larger than a batch may be")
    if count < len(records):
        end = Offset(records[count].record.offset)
    loops = sum(each is None for each in copies[:count])
    if loops == count:
        new = skip(state, end)
        if instance.stores.push.put_delivery(place[1], new) != new:
            raise overtaken(place[1])
    else:
        moved = MovedRecords(topic=topic, key=same_partition(topic, place[1]), data=data)
        try:
            new = move_with_state(instance, place[1], moved, commit(state, end, instance.clock.now_ms()), window)
        except PenstockError as error:
            if not (is_head_gone(error) or is_head_closed(error)):
                raise
            instance.topic_cache.forget(topic.name)
            return _missing(target) if is_head_gone(error) else _altered(target)
    if count > loops:
        instance.telemetry.count("records_pushed", count - loops)
    if loops:
        instance.telemetry.count("push_loops", loops)
    return new


def _fitting(copies: Sequence[NewRecord | None]) -> tuple[bytes | None, int]:
    """One batch of as many copies as fit, from the first on, and their number; no batch if the first is too large."""
    count = len(copies)
    while (data := _encoded(copies[:count])) is None and count > 1:
        count = max(1, count // _FEWER)
    return data, count


def _encoded(copies: Sequence[NewRecord | None]) -> bytes | None:
    return encoded([each for each in copies if each is not None])


def _altered(target: TopicTarget) -> Failed:
    return Failed(failure=Failure.AWAY, error=f"topic {target.topic!r} has fewer writable partitions since")


def _missing(target: TopicTarget) -> Failed:
    return Failed(failure=Failure.AWAY, error=f"topic {target.topic!r} does not exist: create it")
