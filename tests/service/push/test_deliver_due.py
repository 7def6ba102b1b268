"""A service in one process delivers what is due, without a stream that tells it."""

from penstock_core.push.batch import Failed, Failure
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import pause_subscription
from penstock_service.push.deliver_due import deliver_due
from tests.service.push.admin.setting import NAME, create, queue_of
from tests.support.service import SteppedClock, filled_topic, send


def targets_of(instance: Instance) -> MemoryTargets:
    targets = instance.stores.targets
    assert isinstance(targets, MemoryTargets)
    return targets


def delivered(instance: Instance) -> list[int]:
    """The offsets of all records of all deliveries so far."""
    return [each.record.offset for _, batch in targets_of(instance).deliveries for each in batch.records]


def test_records_are_found_by_heads_that_nobody_waits_at(instance: Instance) -> None:
    filled_topic(instance, records=2)
    create(instance, start="earliest")
    assert deliver_due(instance, queue_of(instance)) > 0
    assert deliver_due(instance, queue_of(instance)) == 0, "the head is armed"
    send(instance, "orders", "later")
    assert deliver_due(instance, queue_of(instance)) > 0
    assert delivered(instance) == [0, 1, 2]


def test_lost_message_is_sent_again(instance: Instance) -> None:
    filled_topic(instance, records=2)
    create(instance, start="earliest")
    queue = queue_of(instance)
    for each in queue.receive(10):
        queue.delete(each.receipt)
    deliver_due(instance, queue)
    assert delivered(instance) == [0, 1]


def test_lane_that_rests_gets_no_message_before_its_time(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=1)
    create(instance, start="earliest", backoff_ms_min=60_000)
    targets_of(instance).answer = lambda _target, _batch: Failed(failure=Failure.REFUSAL, error="no")
    deliver_due(instance, queue_of(instance))
    assert deliver_due(instance, queue_of(instance)) == 0
    clock.sleep_ms(61_000)
    deliver_due(instance, queue_of(instance))
    assert delivered(instance) == [0, 0]


def test_paused_subscription_gets_no_message(instance: Instance) -> None:
    filled_topic(instance, records=1)
    create(instance, start="earliest")
    pause_subscription(instance, NAME)
    deliver_due(instance, queue_of(instance))
    assert deliver_due(instance, queue_of(instance)) == 0
    assert delivered(instance) == []
