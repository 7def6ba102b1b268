"""Consumers of one group over the service in memory, threaded and asynchronous: who has which partition."""

import threading
import time
from typing import Any

import pytest

from penstock import Consumer, InstanceFencedError, InvalidError, LeaseLostError
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.faulty_transport import FaultyTransport, answer, lost_answer, lost_request
from tests.sdk.group_setting import BEAT, DEADLINE_S, FAST, PARTITIONS, Told, committed, held, send, until
from tests.sdk.shells import Shell


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    send(service, range(10))
    return "orders"


def test_consumers_share_the_partitions_and_no_record_comes_twice(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, **told.settings()) as first:
        records = until(held(first, 4), first)
        with shell.consumer(orders, **FAST) as second:
            records += until(held(second, 2), first, second)
            assert len(first.assignment()) == 2
            assert not set(first.assignment()) & set(second.assignment())
            send(service, range(10, 20))
            deadline_s = time.monotonic() + DEADLINE_S
            while len(records) < 80 and time.monotonic() < deadline_s:
                records += first.poll(timeout_ms=20) + second.poll(timeout_ms=20)
        records += until(held(first, 4), first)
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in range(20)]
    assert committed(service) == dict.fromkeys(range(4), 20)
    assert [name for name, _ in told.calls] == ["on_assigned", "on_revoked", "on_assigned", "on_revoked"]
    assert "on_lost" not in dict(told.calls)


def test_iteration_hands_over_between_two_records(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    seen: list[tuple[int, int]] = []
    # With a callback, so that nothing is released before it has been told.
    with shell.consumer(orders, **FAST, on_revoked=lambda _: None) as first, shell.consumer(orders, **FAST) as second:
        second_is_there = False
        for record in first:
            seen.append((record.partition, record.offset))
            if len(seen) == 3:
                second.poll(timeout_ms=0)
                deadline_s = time.monotonic() + DEADLINE_S
                while not first._core.membership.to_revoke() and time.monotonic() < deadline_s:
                    time.sleep(0.01)
                second_is_there = True
            if second_is_there and len(first.assignment()) == 2:
                break
        assert len(seen) == 4
        rest = [(each.partition, each.offset) for each in until(held(second, 2), second)]
        deadline_s = time.monotonic() + DEADLINE_S
        while len(seen) + len(rest) < 40 and time.monotonic() < deadline_s:
            rest += [(each.partition, each.offset) for each in second.poll(timeout_ms=20) + first.poll(timeout_ms=20)]
    assert sorted(seen + rest) == [(p, o) for p in range(4) for o in range(10)]


@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})])
def test_failed_heartbeat_loses_nothing(shell: Shell, service: MemoryPenstock, orders: str, fault: Any) -> None:
    told, faulty = Told(), FaultyTransport(service.transport)
    with shell.consumer(orders, transport=faulty, **FAST, **told.settings()) as consumer:
        until(held(consumer, 4), consumer)
        faulty.faults[BEAT] = [fault]
        beats = faulty.count(BEAT)
        until(lambda: faulty.count(BEAT) >= beats + 4, consumer)
        assert [name for name, _ in told.calls] == ["on_assigned"]


def test_application_that_does_not_poll_is_left_out_until_it_does(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    told = Told()
    with (
        shell.consumer(orders, **FAST, **told.settings(), max_poll_interval_ms=500) as hung,
        shell.consumer(orders, **FAST) as other,
    ):
        until(lambda: held(hung, 2)() and held(other, 2)(), hung, other)
        until(held(other, 4), other)
        with pytest.raises(LeaseLostError):
            hung.commit(dict.fromkeys(PARTITIONS, 1))
        until(lambda: held(hung, 2)() and held(other, 2)(), hung, other)
        assert len(told.partitions("on_lost")) == 2


def test_close_leaves_at_once(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    settings = FAST | {"session_timeout_ms": 60_000}
    with shell.consumer(orders, **settings) as stays:
        with shell.consumer(orders, **settings) as goes:
            until(held(goes, 2), stays, goes)
        start_s = time.monotonic()
        until(held(stays, 4), stays)
        assert time.monotonic() - start_s < 10


def test_static_member_keeps_its_partitions_over_a_restart(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, group_instance_id="a", **told.settings()) as stays:
        with shell.consumer(orders, **FAST, group_instance_id="b") as goes:
            until(held(goes, 2), stays, goes)
            assigned = goes.assignment()
        before = list(told.calls)
        with shell.consumer(orders, **FAST, group_instance_id="b") as again:
            until(held(again, 2), again, stays)
            assert again.assignment() == assigned
            assert told.calls == before
            again.close(leave_group=True)
        until(held(stays, 4), stays)


def test_second_process_of_an_instance_stops_the_first(shell: Shell, orders: str) -> None:
    with shell.consumer(orders, **FAST, group_instance_id="a") as first:
        until(held(first, 4), first)
        with shell.consumer(orders, **FAST, group_instance_id="a") as second:
            until(held(second, 4), second)
            with pytest.raises(InstanceFencedError):
                until(lambda: False, first)
            with pytest.raises(InstanceFencedError):
                first.poll()
            until(held(second, 4), second)


def test_callback_may_call_the_consumer(service: MemoryPenstock, orders: str) -> None:
    consumer: Consumer
    sought: list[TopicPartition] = []

    def seek(partitions: list[TopicPartition]) -> None:
        for each in partitions:
            consumer.seek(each, 8)
            sought.append(each)

    with service.consumer(orders, **FAST, on_assigned=seek, on_revoked=lambda _: consumer.commit()) as consumer:
        records = until(lambda: len(sought) == 4, consumer)
        deadline_s = time.monotonic() + DEADLINE_S
        while len(records) < 8 and time.monotonic() < deadline_s:
            records += consumer.poll()
    assert sorted({each.offset for each in records}) == [8, 9]


def test_callback_that_fails_is_told_and_what_it_was_told_has_happened(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    told = Told()
    told.then["on_assigned"] = told.then["on_revoked"] = lambda: 1 / 0
    with shell.consumer(orders, **FAST, **told.settings()) as first:
        with pytest.raises(ZeroDivisionError):
            until(held(first, 4), first)
        assert len(first.assignment()) == 4
        with shell.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            with pytest.raises(ZeroDivisionError):
                until(lambda: False, first)
            until(held(second, 2), second)
        told.then.clear()


def test_pattern_takes_topics_that_come_later(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer("ord*", **FAST) as consumer:
        until(held(consumer, 4), consumer)


def test_close_leaves_no_thread_even_if_the_service_is_away(service: MemoryPenstock, orders: str) -> None:
    before = set(threading.enumerate())
    faulty = FaultyTransport(service.transport)
    consumer = Consumer(orders, transport=faulty, **FAST, enable_auto_commit=False)
    until(held(consumer, 4), consumer)
    assert any(thread.name.startswith("penstock-heartbeat") for thread in threading.enumerate())
    faulty.faults[BEAT] = [lost_request] * 100_000
    start_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - start_s < 10
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("penstock-")]


def test_consumer_that_never_polled_closes_without_a_word(shell: Shell, faulty: FaultyTransport, orders: str) -> None:
    with shell.consumer(orders, transport=faulty, **FAST):
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
def test_group_settings_that_can_not_be_are_refused(
    shell: Shell, topics: list[str], setting: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        shell.consumer(*topics, **(FAST | setting))


def test_pattern_without_group_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidError, match="only groups take patterns"):
        shell.consumer("ord*")
