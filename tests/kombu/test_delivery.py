import threading
from typing import Any

import pytest

from penstock import ShareConsumer
from penstock.errors import ConnectionFailedError, NotFoundError
from penstock.model.share import ShareRecord
from penstock.testing import MemoryPenstock
from penstock_kombu.delivery import Deliveries, QueueReader
from tests.support.deadlines import until

_COUNT = 10


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries(threading.Condition())


@pytest.fixture
def tasks(service: MemoryPenstock) -> MemoryPenstock:
    """A queue with ten records."""
    service.create_topic("tasks")
    service.create_share_group("tasks", "tasks", {"start": "earliest"})
    producer = service.producer()
    for number in range(_COUNT):
        producer.send("tasks", str(number).encode())
    producer.flush()
    return service


def _reader(service: MemoryPenstock, deliveries: Deliveries, max_records: int = _COUNT) -> QueueReader:
    consumer = service.share_consumer(
        group_id="tasks", acknowledge="explicit", max_records=max_records, lock_ms=1_000, on_lock_lost=deliveries.lose
    )
    return QueueReader("tasks", consumer, deliveries, lambda message: None, is_acknowledged=False)


def _counts(service: MemoryPenstock) -> tuple[int, int]:
    """Locked and finished records."""
    [partition] = service.admin().describe_share_group("tasks").partitions
    return partition.in_flight, _COUNT - partition.lag


def _all(deliveries: Deliveries) -> list[int]:
    found = []
    with deliveries.changed:
        while each := deliveries.next():
            found.append(each.tag)
    return found


def test_reader_holds_as_many_records_as_there_is_room_for(tasks: MemoryPenstock, deliveries: Deliveries) -> None:
    deliveries.prefetch_count = 3
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == 3)
    assert deliveries.room() == 0
    first, *others = _all(deliveries)
    assert deliveries.room() == 0, "unacknowledged messages take room"

    [settled] = deliveries.settle(first)
    reader.accept(settled.record)
    until(lambda: len(deliveries.ready) == 1)
    assert sorted(deliveries.unacknowledged) == others
    reader.stop()
    reader.close()


def test_all_records_are_ready_without_a_prefetch_count(tasks: MemoryPenstock, deliveries: Deliveries) -> None:
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == _COUNT)
    reader.stop()
    reader.close()


def test_record_beyond_the_room_goes_back_uncounted(tasks: MemoryPenstock, deliveries: Deliveries) -> None:
    """Two readers of one channel may each find a record for the last place."""
    deliveries.prefetch_count = 1
    readers = [_reader(tasks, deliveries, 1) for _ in range(2)]
    until(lambda: len(deliveries.ready) == 1)
    until(lambda: _counts(tasks)[0] == 1)
    assert deliveries.room() == 0
    for reader in readers:
        reader.stop()
        reader.close()
    other, found = tasks.share_consumer(group_id="tasks", acknowledge="explicit"), list[ShareRecord]()
    until(lambda: len(found) == _COUNT, step=lambda: found.extend(other.poll(timeout_ms=100)))
    assert [each.delivery_count for each in found] == [1] * _COUNT


def test_stopped_reader_gives_back_what_is_ready_and_keeps_what_is_delivered(
    tasks: MemoryPenstock, deliveries: Deliveries
) -> None:
    deliveries.prefetch_count = 4
    reader = _reader(tasks, deliveries, 4)
    until(lambda: len(deliveries.ready) == 4)
    with deliveries.changed:
        taken = deliveries.next()
    assert taken is not None
    reader.stop()
    until(lambda: _counts(tasks) == (1, 0))
    assert not deliveries.ready
    assert reader.accept(taken.record)
    reader.close()
    assert _counts(tasks) == (0, 1)


def test_settle_forgets_one_message_or_all_before_it(tasks: MemoryPenstock, deliveries: Deliveries) -> None:
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == _COUNT)
    tags = _all(deliveries)
    assert [each.tag for each in deliveries.settle(tags[1])] == tags[1:2]
    assert deliveries.settle(tags[1]) == []
    assert [each.tag for each in deliveries.settle(tags[3], multiple=True)] == [tags[0], *tags[2:4]]
    assert [each.tag for each in deliveries.settle(0, multiple=True)] == tags[4:]
    reader.stop()
    reader.close()


def test_late_accept_says_that_the_lock_is_lost(tasks: MemoryPenstock, deliveries: Deliveries) -> None:
    deliveries.prefetch_count = 1
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == 1)
    with deliveries.changed:
        taken = deliveries.next()
    assert taken is not None
    consumer: Any = reader._consumer
    tasks.admin().reset_share_group("tasks", "tasks", to="earliest")  # every lock is lost
    consumer.renew(taken.record)
    until(lambda: not consumer.is_held(taken.record))
    assert not reader.accept(taken.record)
    reader.reject(taken.record, "too late")
    reader.release(taken.record, is_counted=True)
    reader.stop()
    reader.close()


def test_message_whose_lock_the_service_says_is_lost_is_not_delivered(
    tasks: MemoryPenstock, deliveries: Deliveries
) -> None:
    deliveries.prefetch_count = 2
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == 2)
    lost = [each.record for each in deliveries.ready]
    tasks.admin().reset_share_group("tasks", "tasks", to="earliest")  # every lock is lost
    until(lambda: len(deliveries.ready) == 2 and not any(each.record in lost for each in deliveries.ready))
    assert {each.record.offset for each in deliveries.ready} == {0, 1}, "they come again under new locks"
    reader.stop()
    reader.close()


def test_message_is_passed_over_before_its_consumer_tells_that_the_lock_is_lost(
    tasks: MemoryPenstock, deliveries: Deliveries
) -> None:
    deliveries.prefetch_count = 2
    reader = _reader(tasks, deliveries)
    until(lambda: len(deliveries.ready) == 2)
    first, second = deliveries.ready
    assert reader.accept(first.record), "no longer in hand"
    with deliveries.changed:
        assert deliveries.next() == second
    assert list(deliveries.unacknowledged) == [second.tag]
    until(lambda: len(deliveries.ready) == 1, shown=lambda: "the place of the first one is free again")
    reader.stop()
    reader.close()


def test_message_is_given_back_when_its_lock_ends_without_a_renewal(
    tasks: MemoryPenstock, deliveries: Deliveries
) -> None:
    """The network of this worker breaks for longer than a lock. Another worker gets the records."""
    transport, is_broken = tasks.transport, False

    class Breaking:
        def call(self, *arguments: Any, **options: Any) -> Any:
            if is_broken:
                raise ConnectionFailedError("no network", maybe_applied=True)
            return transport.call(*arguments, **options)

        def close(self) -> None:
            """The service closes it."""

    deliveries.prefetch_count = 3
    consumer = ShareConsumer(
        transport=Breaking(),
        group_id="tasks",
        acknowledge="explicit",
        max_records=3,
        lock_ms=1_000,
        on_lock_lost=deliveries.lose,
    )
    reader = QueueReader("tasks", consumer, deliveries, lambda message: None, is_acknowledged=False)
    until(lambda: len(deliveries.ready) == 3)
    is_broken = True
    until(lambda: not deliveries.ready)
    with deliveries.changed:
        assert deliveries.next() is None
    other, found = tasks.share_consumer(group_id="tasks", acknowledge="explicit"), list[ShareRecord]()
    until(lambda: len(found) == _COUNT, step=lambda: found.extend(other.poll(timeout_ms=100)))
    is_broken = False
    reader.stop()
    reader.close()


def test_error_of_a_reader_is_raised_once_by_the_next_look(service: MemoryPenstock, deliveries: Deliveries) -> None:
    reader = _reader(service, deliveries)  # without a group
    until(lambda: deliveries.error)
    with deliveries.changed:
        with pytest.raises(NotFoundError, match="tasks"):
            deliveries.next()
        assert deliveries.next() is None
    reader.stop()
    reader.close()
