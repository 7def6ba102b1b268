"""Delayed records of the SDK: due times, ids, batches, retries, transactions, and what an admin sees of them."""

import time
from typing import Any

import pytest

from penstock.errors import ConflictError, InvalidError, NotFoundError
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET
from penstock.producer.delays import Timer, Timers
from penstock.producer.produce_call import produce_request
from penstock.producer.transaction import Transaction
from penstock.testing import MemoryPenstock
from penstock_core.limits import SDK_REQUEST_TIMERS_MAX, TIMER_DELAY_MS_MAX
from penstock_core.records import frame
from tests.sdk.client_kinds import ClientKind
from tests.sdk.producer.batching.accumulator_fixtures import MAYBE, append, new_accumulator, new_topic, values_of
from tests.support.deadlines import DEADLINE_S, until

NOW = 1_800_000_000_050


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    return service.create_topic("orders", partitions=2).name


def timers() -> Timers:
    return Timers(lambda: NOW, lambda count: b"\x00" * count)


def delayed(accumulator: Any, topic: Any, value: bytes, timer: Timer, partition: int | None = 0) -> Any:
    batch = accumulator.append(topic, partition, None, value, (), 0, 0, timer)
    assert batch is not None
    return batch


def test_delay_is_rounded_up_and_a_time_is_exact() -> None:
    found = timers()
    late = found.timer(None, 1_001, cancellable=False)
    exact = found.timer(NOW + 1, None, cancellable=True)
    assert late is not None
    assert exact is not None
    assert (late.deliver_at_ms, exact.deliver_at_ms) == (NOW - 50 + 1_100, NOW + 1)
    assert late.timer_id < exact.timer_id
    assert late.scheduled_id(3) is None
    assert exact.scheduled_id(3) == f"3-{NOW + 1}-{exact.timer_id}"
    assert found.timer(None, None, cancellable=False) is None


def test_longest_delay_is_not_rounded_up() -> None:
    longest = timers().timer(None, TIMER_DELAY_MS_MAX, cancellable=False)
    assert longest is not None
    assert longest.deliver_at_ms == NOW + TIMER_DELAY_MS_MAX


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"delay_ms": TIMER_DELAY_MS_MAX + 1},
        {"deliver_at_ms": -1},
        {"deliver_at_ms": 10**15},
        {"deliver_at_ms": 1, "delay_ms": 1},
        {"cancellable": True},
    ],
)
def test_wrong_delay_is_refused_before_it_is_sent(service: MemoryPenstock, orders: str, fields: dict[str, Any]) -> None:
    with service.producer() as producer, pytest.raises(InvalidError):
        producer.send(orders, b"v", **fields)


def test_records_of_one_due_time_share_an_entry_and_others_have_their_own() -> None:
    accumulator, topic, found = new_accumulator(), new_topic(), timers()
    first, second, alone = (
        found.timer(NOW + 100, None, cancellable=False),
        found.timer(NOW + 100, None, cancellable=False),
        found.timer(NOW + 100, None, cancellable=True),
    )
    last, other = found.timer(NOW + 100, None, cancellable=False), found.timer(NOW + 200, None, cancellable=False)
    append(accumulator, topic, 0, b"now")
    for value, timer in ((b"a", first), (b"b", second), (b"c", alone), (b"d", last), (b"e", other)):
        assert timer is not None
        delayed(accumulator, topic, value, timer)
    entries = accumulator.drain(100)
    assert [values_of(entry) for entry in entries] == [[b"now"], [b"a", b"b"], [b"c"], [b"d"], [b"e"]]
    header, _ = frame.decode(produce_request(entries, "quorum").body)
    batches: Any = header["batches"]
    assert [each.get("timer_id") for each in batches] == [
        None, *(timer and timer.timer_id for timer in (first, alone, last, other))
    ]  # fmt: skip
    assert topic.delayed == {}


def test_timer_that_has_left_takes_no_other_record_and_is_repeated_as_it_was() -> None:
    accumulator, topic, found = new_accumulator(), new_topic(), timers()
    for value in (b"a", b"b"):
        timer = found.timer(NOW, None, cancellable=False)
        assert timer is not None
        delayed(accumulator, topic, value, timer)
        entries = accumulator.drain(100)
        request = produce_request(entries, "quorum").body
        assert not accumulator.complete(entries, [MAYBE], 100, 0.0)
        again = accumulator.drain(10_000)
        assert produce_request(again, "quorum").body == request
        finished = accumulator.complete(again, [UNKNOWN_OFFSET], 10_000, 0.0)
        assert [batch.outcome for batch in finished] == [UNKNOWN_OFFSET]
    assert accumulator.buffered_bytes == 0


def test_full_batch_of_a_due_time_begins_another_timer() -> None:
    accumulator, topic, found = new_accumulator(), new_topic(), timers()
    for _ in range(20):
        timer = found.timer(NOW, None, cancellable=False)
        assert timer is not None
        delayed(accumulator, topic, b"x" * 50, timer, partition=None)
    entries = accumulator.drain(100)
    assert len(entries) > 2
    assert [len(entry.batches) for entry in entries] == [1] * len(entries)
    ids = [entry.queue.timer and entry.queue.timer.timer_id for entry in entries]
    assert ids == sorted(set(ids), key=str)


def test_delayed_record_comes_when_it_is_due(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer() as producer:
        sent = producer.send(orders, b"later", partition=1, delay_ms=300)
        producer.send(orders, b"now", partition=1)
        producer.flush()
        told = sent.result(DEADLINE_S)
    assert (told.offset, told.partition, told.scheduled_id) == (-1, 1, None)
    assert told.deliver_at_ms is not None
    until(lambda: len(service.records(orders)) == 2)
    assert time.time_ns() // 1_000_000 >= told.deliver_at_ms
    assert [record.value for record in service.records(orders)] == [b"now", b"later"]


def test_cancellable_record_is_listed_and_cancelled(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    with service.producer() as producer:
        sent = [producer.send(orders, str(n), partition=0, delay_ms=60_000, cancellable=True) for n in range(3)]
    names = [each.result(DEADLINE_S).scheduled_id for each in sent]
    assert [each.scheduled_id for each in admin.list_scheduled(orders)] == names
    assert admin.list_scheduled(orders, 1) == []
    for _ in range(2):
        assert admin.cancel_scheduled(orders, str(names[1])).records == 1
    assert [each.scheduled_id for each in admin.list_scheduled(orders, 0)] == [names[0], names[2]]
    with pytest.raises(NotFoundError):
        admin.cancel_scheduled(orders, f"0-5-{'0' * 32}")


def test_delivered_record_cannot_be_cancelled(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        name = producer.send(orders, b"v", delay_ms=0, cancellable=True).result(DEADLINE_S).scheduled_id
    until(lambda: service.records(orders))
    with pytest.raises(ConflictError):
        service.admin().cancel_scheduled(orders, str(name))


def _abort(transaction: Transaction, topic: str) -> None:
    with transaction:
        transaction.send(topic, b"never", partition=0, delay_ms=100)
        raise ZeroDivisionError


def test_delayed_records_of_a_transaction_come_if_it_commits(service: MemoryPenstock, orders: str) -> None:
    with service.producer(transactional_id="t") as producer:
        with producer.transaction() as transaction:
            sent = transaction.send(orders, b"later", partition=0, delay_ms=100)
            transaction.send(orders, b"now", partition=0)
        with pytest.raises(ZeroDivisionError):
            _abort(producer.transaction(), orders)
    assert sent.result(DEADLINE_S).offset == -1
    until(lambda: len(service.records(orders)) == 2)
    assert [record.value for record in service.records(orders)] == [b"now", b"later"]
    assert service.admin().list_scheduled(orders) == []


def test_request_takes_few_timers_and_all_else_that_is_ready() -> None:
    accumulator, topic, found = new_accumulator(request_bytes=100_000), new_topic(), timers()
    for number in range(SDK_REQUEST_TIMERS_MAX + 2):
        timer = found.timer(NOW + 100 * number, None, cancellable=False)
        assert timer is not None
        delayed(accumulator, topic, b"later", timer)
    append(accumulator, topic, 1, b"now")
    first, second = accumulator.drain(100), accumulator.drain(100)
    assert [len(first), len(second)] == [SDK_REQUEST_TIMERS_MAX + 1, 2]
    assert first[-1].queue.timer is None
