"""Consumers of one group over the service in memory, threaded and asynchronous: which member has which partition."""

import threading
import time
from typing import Any

import pytest

from penstock import Consumer, InstanceFencedError, InvalidError, LeaseLostError
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.group.group_fixtures import (
    BEAT,
    FAST,
    PARTITIONS,
    RebalanceRecorder,
    committed,
    moving,
    send,
    until_heard,
)
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer, lost_request
from tests.sdk.polling import has, poll_count, poll_until
from tests.support.deadlines import until


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    send(service, range(10))
    return "orders"


def test_consumers_share_the_partitions_and_no_record_comes_twice(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    recorder = RebalanceRecorder()
    with clients.consumer(orders, **FAST, **recorder.settings()) as first:
        records = poll_until(has(4, first), first)
        with clients.consumer(orders, **FAST) as second:
            records += poll_until(has(2, second), first, second)
            assert len(first.assignment()) == 2
            assert not set(first.assignment()) & set(second.assignment())
            send(service, range(10, 20))
            records += poll_count(80 - len(records), first, second)
        records += poll_until(has(4, first), first)
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in range(20)]
    assert committed(service) == dict.fromkeys(range(4), 20)
    assert [name for name, _ in recorder.calls] == ["on_assigned", "on_revoked", "on_assigned", "on_revoked"]
    assert "on_lost" not in dict(recorder.calls)


def test_iteration_hands_over_between_two_records(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    seen: list[tuple[int, int]] = []
    # With a callback, so that nothing is released before the callback was called.
    with (
        clients.consumer(orders, transport=faulty, **FAST, on_revoked=lambda _: None) as first,
        clients.consumer(orders, **FAST) as second,
    ):
        second_is_there = False
        for record in first:
            seen.append((record.partition, record.offset))
            if len(seen) == 3:
                second.poll(timeout_ms=0)
                until(lambda: moving(service))
                until_heard(faulty)
                second_is_there = True
            if second_is_there and len(first.assignment()) == 2:
                break
        assert len(seen) == 4
        rest = [(each.partition, each.offset) for each in poll_until(has(2, second), second)]
        rest += [(each.partition, each.offset) for each in poll_count(40 - len(seen) - len(rest), second, first)]
    assert sorted(seen + rest) == [(p, o) for p in range(4) for o in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})])
def test_failed_heartbeat_loses_nothing(clients: ClientKind, service: MemoryPenstock, orders: str, fault: Any) -> None:
    recorder, faulty = RebalanceRecorder(), FaultyTransport(service.transport)
    with clients.consumer(orders, transport=faulty, **FAST, **recorder.settings()) as consumer:
        poll_until(has(4, consumer), consumer)
        faulty.faults[BEAT] = [fault]
        beats = faulty.count(BEAT)
        poll_until(lambda _: faulty.count(BEAT) >= beats + 4, consumer)
        assert [name for name, _ in recorder.calls] == ["on_assigned"]


@pytest.mark.slow
def test_application_that_does_not_poll_is_left_out_until_it_does(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    recorder = RebalanceRecorder()
    with (
        clients.consumer(orders, **FAST, **recorder.settings(), max_poll_interval_ms=500) as hung,
        clients.consumer(orders, **FAST) as other,
    ):
        poll_until(has(2, hung, other), hung, other)
        poll_until(has(4, other), other)
        with pytest.raises(LeaseLostError):
            hung.commit(dict.fromkeys(PARTITIONS, 1))
        poll_until(has(2, hung, other), hung, other)
        assert len(recorder.partitions("on_lost")) == 2


def test_close_leaves_at_once(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    settings = FAST | {"session_timeout_ms": 60_000}
    with clients.consumer(orders, **settings) as stays:
        with clients.consumer(orders, **settings) as goes:
            poll_until(has(2, goes), stays, goes)
        start_s = time.monotonic()
        poll_until(has(4, stays), stays)
        assert time.monotonic() - start_s < 10


def test_static_member_keeps_its_partitions_over_a_restart(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    recorder = RebalanceRecorder()
    with clients.consumer(orders, **FAST, group_instance_id="a", **recorder.settings()) as stays:
        with clients.consumer(orders, **FAST, group_instance_id="b") as goes:
            poll_until(has(2, goes), stays, goes)
            assigned = goes.assignment()
        before = list(recorder.calls)
        with clients.consumer(orders, **FAST, group_instance_id="b") as again:
            poll_until(has(2, again), again, stays)
            assert again.assignment() == assigned
            assert recorder.calls == before
            again.close(leave_group=True)
        poll_until(has(4, stays), stays)


def test_second_process_of_an_instance_stops_the_first(clients: ClientKind, orders: str) -> None:
    with clients.consumer(orders, **FAST, group_instance_id="a") as first:
        poll_until(has(4, first), first)
        with clients.consumer(orders, **FAST, group_instance_id="a") as second:
            poll_until(has(4, second), second)
            with pytest.raises(InstanceFencedError):
                poll_until(lambda _: False, first)
            with pytest.raises(InstanceFencedError):
                first.poll()
            poll_until(has(4, second), second)


def test_callback_may_call_the_consumer(service: MemoryPenstock, orders: str) -> None:
    consumer: Consumer
    sought: list[TopicPartition] = []

    def seek(partitions: list[TopicPartition]) -> None:
        for each in partitions:
            consumer.seek(each, 8)
            sought.append(each)

    with service.consumer(orders, **FAST, on_assigned=seek, on_revoked=lambda _: consumer.commit()) as consumer:
        records = poll_until(lambda _: len(sought) == 4, consumer)
        records += poll_count(8 - len(records), consumer)
    assert sorted({each.offset for each in records}) == [8, 9]


def test_rebalance_has_happened_when_its_callback_raises(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    recorder = RebalanceRecorder()
    recorder.then["on_assigned"] = recorder.then["on_revoked"] = lambda: 1 / 0
    with clients.consumer(orders, **FAST, **recorder.settings()) as first:
        with pytest.raises(ZeroDivisionError):
            poll_until(has(4, first), first)
        assert len(first.assignment()) == 4
        with clients.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            with pytest.raises(ZeroDivisionError):
                poll_until(lambda _: False, first)
            poll_until(has(2, second), second)
        recorder.then.clear()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_starts_in_many_topics_take_a_call_for_a_hundred_partitions(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, reset: str
) -> None:
    for number in range(60):
        service.create_topic(f"t{number:02}", partitions=2)
    with service.producer() as producer:
        for number in range(60):
            producer.send(f"t{number:02}", b"early", partition=1)
    settings = {**FAST, "auto_offset_reset": reset}
    with clients.consumer("t*", transport=faulty, **settings) as consumer:
        records = poll_until(has(120, consumer), consumer)
        wanted = 60 if reset == "earliest" else 0
        records += poll_count(wanted - len(records), consumer)
        assert [each.value for each in records] == [b"early"] * wanted
    asked = [path for _, path, _ in faulty.calls if path.startswith("/v1/topics/") and path.endswith("/offsets")]
    assert asked == []


def test_pattern_takes_topics_that_come_later(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.consumer("ord*", **FAST) as consumer:
        poll_until(has(4, consumer), consumer)


@pytest.mark.slow
def test_close_leaves_no_thread_even_if_the_service_is_away(service: MemoryPenstock, orders: str) -> None:
    before = set(threading.enumerate())
    faulty = FaultyTransport(service.transport)
    consumer = Consumer(orders, transport=faulty, **FAST, enable_auto_commit=False)
    poll_until(has(4, consumer), consumer)
    assert any(thread.name.startswith("penstock-heartbeat") for thread in threading.enumerate())
    faulty.faults[BEAT] = [lost_request] * 100_000
    start_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - start_s < 10
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("penstock-")]


def test_consumer_that_never_polled_closes_without_a_word(
    clients: ClientKind, faulty: FaultyTransport, orders: str
) -> None:
    with clients.consumer(orders, transport=faulty, **FAST):
        pass
    assert faulty.calls == []


@pytest.mark.parametrize(
    ("topics", "setting", "said"),
    [
        (["orders"], {"group_id": None}, "group_id"),
        ([], {"group_id": None}, "session_timeout_ms is for consumers of topics"),
        (["orders"], {"session_timeout_ms": 1}, "session_timeout_ms=1"),
        (["orders"], {"heartbeat_interval_ms": 2_100}, "3 intervals"),
        (["orders"], {"partition_assignment_strategy": "fair"}, "'fair': use sticky"),
        (["orders"], {"max_poll_interval_ms": 0}, "max_poll_interval_ms=0"),
        (["orders"], {"group_instance_id": ""}, "group_instance_id"),
        (["a" * 300 + "*"], {}, "pattern"),
    ],
)
def test_group_fixturess_that_can_not_be_are_refused(
    clients: ClientKind, topics: list[str], setting: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        clients.consumer(*topics, **(FAST | setting))


def test_pattern_without_group_is_refused(clients: ClientKind) -> None:
    with pytest.raises(InvalidError, match="only groups take patterns"):
        clients.consumer("ord*")
