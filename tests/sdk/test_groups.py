"""Consumers of one group over the service in memory, threaded and asynchronous."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Consumer, InstanceFencedError, InvalidError, LeaseHeldError, LeaseLostError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.faulty_transport import FaultyTransport, answer, lost_answer, lost_request
from tests.sdk.shells import Shell

DEADLINE_S = 30
OFFSETS, BEAT = "/v1/groups/g/offsets", "/v1/groups/g/heartbeat"
FAST: dict[str, Any] = {
    "group_id": "g",
    "fetch_wait_ms": 10,
    "retry_backoff_ms": 1,
    "session_timeout_ms": 6_000,  # which a slow machine does not lose between two heartbeats
    "heartbeat_interval_ms": 250,
}
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    _send(service, range(10))
    return "orders"


def _send(service: MemoryPenstock, numbers: range) -> None:
    """Each number to every partition."""
    with service.producer() as producer:
        for partition in range(4):
            for number in numbers:
                producer.send("orders", b"%d" % number, partition=partition)


def _until(holds: Callable[[], bool], *consumers: Any) -> list[ConsumerRecord]:
    """What these read, polled in turns, until it holds."""
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s, [each.assignment() for each in consumers]
        for consumer in consumers:
            records += consumer.poll(timeout_ms=20)
    return records


def _held(consumer: Any, count: int) -> Callable[[], bool]:
    return lambda: len(consumer.assignment()) == count


def _committed(service: MemoryPenstock) -> dict[int, int]:
    return {each.partition: each.offset for each in service.admin().group_offsets("g")}


class Told:
    """Callbacks that keep what they were told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.then: dict[str, Callable[[], Any]] = {}

    def settings(self) -> dict[str, Any]:
        return {name: self._callback(name) for name in ("on_assigned", "on_revoked", "on_lost")}

    def partitions(self, name: str) -> list[int]:
        return sorted(number for each, numbers in self.calls for number in numbers if each == name)

    def _callback(self, name: str) -> Callable[[list[TopicPartition]], Any]:
        def tell(partitions: list[TopicPartition]) -> Any:
            self.calls.append((name, [each.partition for each in partitions]))
            return self.then.get(name, lambda: None)()

        return tell


def test_consumers_share_the_partitions_and_no_record_comes_twice(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, **told.settings()) as first:
        records = _until(_held(first, 4), first)
        with shell.consumer(orders, **FAST) as second:
            records += _until(_held(second, 2), first, second)
            assert len(first.assignment()) == 2
            assert not set(first.assignment()) & set(second.assignment())
            _send(service, range(10, 20))
            deadline_s = time.monotonic() + DEADLINE_S
            while len(records) < 80 and time.monotonic() < deadline_s:
                records += first.poll(timeout_ms=20) + second.poll(timeout_ms=20)
        records += _until(_held(first, 4), first)
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in range(20)]
    assert _committed(service) == dict.fromkeys(range(4), 20)
    assert [name for name, _ in told.calls] == ["on_assigned", "on_revoked", "on_assigned", "on_revoked"]
    assert "on_lost" not in dict(told.calls)


def test_handed_over_partition_is_committed_before_and_not_sooner(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    """No auto commit falls due here; what the last poll handed out counts as dealt with at the next."""
    with shell.consumer(orders, **FAST, auto_commit_interval_ms=600_000, max_poll_records=1_000) as first:
        records: list[ConsumerRecord] = []
        while len(records) < 40:
            records += first.poll()
        assert set(_committed(service).values()) <= {0}
        with shell.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            time.sleep(1)  # the group wants two partitions back meanwhile, and waits
            assert set(_committed(service).values()) <= {0}
            assert _until(_held(second, 2), first, second) == []
            assert sorted(_committed(service).values()) == [0, 0, 10, 10]
            assert [second.position(each) for each in second.assignment()] == [10, 10]


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
        rest = [(each.partition, each.offset) for each in _until(_held(second, 2), second)]
        deadline_s = time.monotonic() + DEADLINE_S
        while len(seen) + len(rest) < 40 and time.monotonic() < deadline_s:
            rest += [(each.partition, each.offset) for each in second.poll(timeout_ms=20) + first.poll(timeout_ms=20)]
    assert sorted(seen + rest) == [(p, o) for p in range(4) for o in range(10)]


def test_lost_lease_is_dropped_without_commit_and_told(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    """The member's session ends while it cannot be heard of; another has committed further meanwhile."""
    told = Told()
    settings = FAST | {"session_timeout_ms": 2_000}
    faulty = FaultyTransport(service.transport)
    with shell.consumer(orders, transport=faulty, **settings, **told.settings()) as sleeper:
        assert _until(lambda: len(told.partitions("on_assigned")) == 4, sleeper) is not None
        faulty.faults[BEAT] = [lost_request] * 10_000
        with shell.consumer(orders, **settings) as other:
            records = len(_until(_held(other, 4), other))
            deadline_s = time.monotonic() + DEADLINE_S
            while records < 40 and time.monotonic() < deadline_s:
                records += len(other.poll())
            other.commit()
            ahead = _committed(service)
            with pytest.raises(LeaseLostError):
                sleeper.commit({PARTITIONS[0]: 1})
            assert _committed(service) == ahead == dict.fromkeys(range(4), 10)
            _until(lambda: told.partitions("on_lost") == [0, 1, 2, 3], sleeper)
            assert sleeper.assignment() == []
            faulty.faults[BEAT] = []
            _until(_held(sleeper, 2), sleeper, other)
            assert told.partitions("on_revoked") == []


@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(429, b"{}", {"Retry-After": "1"})])
def test_failed_heartbeat_loses_nothing(shell: Shell, service: MemoryPenstock, orders: str, fault: Any) -> None:
    told, faulty = Told(), FaultyTransport(service.transport)
    with shell.consumer(orders, transport=faulty, **FAST, **told.settings()) as consumer:
        _until(_held(consumer, 4), consumer)
        faulty.faults[BEAT] = [fault]
        beats = faulty.count(BEAT)
        _until(lambda: faulty.count(BEAT) >= beats + 4, consumer)
        assert [name for name, _ in told.calls] == ["on_assigned"]


def test_refused_commit_loses_that_partition_only(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, **told.settings()) as consumer:
        _until(_held(consumer, 4), consumer)
        membership = consumer._core.membership
        lease = membership.owned[PARTITIONS[1]]
        object.__setattr__(lease, "lease_epoch", lease.lease_epoch + 7)
        with pytest.raises(LeaseLostError, match="lease"):
            consumer.commit(dict.fromkeys(PARTITIONS, 3))
        _until(lambda: told.partitions("on_lost") == [1], consumer)
        assert _committed(service) == {0: 3, 1: 0, 2: 3, 3: 3} or _committed(service) == {0: 3, 2: 3, 3: 3}
        _until(_held(consumer, 4), consumer)


def test_application_that_does_not_poll_is_left_out_until_it_does(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    told = Told()
    with (
        shell.consumer(orders, **FAST, **told.settings(), max_poll_interval_ms=500) as hung,
        shell.consumer(orders, **FAST) as other,
    ):
        _until(lambda: _held(hung, 2)() and _held(other, 2)(), hung, other)
        _until(_held(other, 4), other)
        with pytest.raises(LeaseLostError):
            hung.commit(dict.fromkeys(PARTITIONS, 1))
        _until(lambda: _held(hung, 2)() and _held(other, 2)(), hung, other)
        assert len(told.partitions("on_lost")) == 2


def test_close_leaves_at_once(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    settings = FAST | {"session_timeout_ms": 60_000}
    with shell.consumer(orders, **settings) as stays:
        with shell.consumer(orders, **settings) as goes:
            _until(_held(goes, 2), stays, goes)
        start_s = time.monotonic()
        _until(_held(stays, 4), stays)
        assert time.monotonic() - start_s < 10


def test_static_member_keeps_its_partitions_over_a_restart(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, group_instance_id="a", **told.settings()) as stays:
        with shell.consumer(orders, **FAST, group_instance_id="b") as goes:
            _until(_held(goes, 2), stays, goes)
            held = goes.assignment()
        before = list(told.calls)
        with shell.consumer(orders, **FAST, group_instance_id="b") as again:
            _until(_held(again, 2), again, stays)
            assert again.assignment() == held
            assert told.calls == before
            again.close(leave_group=True)
        _until(_held(stays, 4), stays)


def test_second_process_of_an_instance_stops_the_first(shell: Shell, orders: str) -> None:
    with shell.consumer(orders, **FAST, group_instance_id="a") as first:
        _until(_held(first, 4), first)
        with shell.consumer(orders, **FAST, group_instance_id="a") as second:
            _until(_held(second, 4), second)
            with pytest.raises(InstanceFencedError):
                _until(lambda: False, first)
            with pytest.raises(InstanceFencedError):
                first.poll()
            _until(_held(second, 4), second)


def test_at_most_once_commits_under_its_leases_before_it_hands_over(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    with shell.consumer(orders, **FAST, delivery="at_most_once") as consumer:
        taken = consumer.poll(4, timeout_ms=20_000)
        assert taken
        for record in taken:
            assert _committed(service)[record.partition] > record.offset


def test_latest_holds_for_whoever_comes_after(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    """The first dies before it has read anything: what came since it started is not skipped by the next."""
    with shell.consumer(orders, **FAST, auto_offset_reset="latest") as first:
        _until(lambda: _committed(service) == dict.fromkeys(range(4), 10), first)
        _send(service, range(10, 12))
        first.close(autocommit=False)
    with shell.consumer(orders, **FAST, auto_offset_reset="latest") as second:
        records: list[ConsumerRecord] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(records) < 8 and time.monotonic() < deadline_s:
            records += second.poll()
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in (10, 11)]


def test_going_back_is_committed(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer(orders, **FAST, enable_auto_commit=False) as consumer:
        _until(_held(consumer, 4), consumer)
        consumer.commit(dict.fromkeys(PARTITIONS, 9))
        consumer.commit({PARTITIONS[2]: 4})
    assert _committed(service) == {0: 9, 1: 9, 2: 4, 3: 9}


def test_transaction_commits_offsets_under_the_members_leases(service: MemoryPenstock, orders: str) -> None:
    with (
        service.consumer(orders, **FAST, enable_auto_commit=False) as first,
        service.consumer(orders, **FAST, enable_auto_commit=False) as second,
        service.producer(transactional_id="t") as producer,
    ):
        _until(lambda: _held(first, 2)() and _held(second, 2)(), first, second)
        with producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(first.assignment(), 7), first)
        assert sorted(_committed(service).values()) == [7, 7]
        with pytest.raises(LeaseLostError), producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(PARTITIONS, 9), second)
        assert sorted(_committed(service).values()) == [7, 7]


def test_callback_may_call_the_consumer(service: MemoryPenstock, orders: str) -> None:
    consumer: Consumer
    sought: list[TopicPartition] = []

    def seek(partitions: list[TopicPartition]) -> None:
        for each in partitions:
            consumer.seek(each, 8)
            sought.append(each)

    with service.consumer(orders, **FAST, on_assigned=seek, on_revoked=lambda _: consumer.commit()) as consumer:
        records = _until(lambda: len(sought) == 4, consumer)
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
            _until(_held(first, 4), first)
        assert len(first.assignment()) == 4
        with shell.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            with pytest.raises(ZeroDivisionError):
                _until(lambda: False, first)
            _until(_held(second, 2), second)
        told.then.clear()


def test_pattern_takes_topics_that_come_later(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer("ord*", **FAST) as consumer:
        _until(_held(consumer, 4), consumer)


def test_simple_consumer_does_not_commit_over_a_member(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer(orders, **FAST) as member, shell.consumer(group_id="g") as simple:
        _until(_held(member, 4), member)
        simple.assign(PARTITIONS[:1])
        with pytest.raises(LeaseHeldError):
            simple.commit({PARTITIONS[0]: 5})


def test_hand_over_that_cannot_commit_goes_on_all_the_same(
    shell: Shell, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    with shell.consumer(orders, transport=faulty, **FAST, auto_commit_interval_ms=600_000) as first:
        records: list[ConsumerRecord] = []
        while len(records) < 40:
            records += first.poll()
        faulty.faults[OFFSETS] = [answer(403, b"{}")]
        with shell.consumer(orders, **FAST) as second:
            again = _until(_held(second, 2), first, second)
            deadline_s = time.monotonic() + DEADLINE_S
            while len(again) < 20 and time.monotonic() < deadline_s:
                again += second.poll(timeout_ms=20)
            assert {(each.partition, each.offset) for each in again} == {
                (partition.partition, offset) for partition in second.assignment() for offset in range(10)
            }


def test_close_leaves_no_thread_even_if_the_service_is_away(service: MemoryPenstock, orders: str) -> None:
    before = set(threading.enumerate())
    faulty = FaultyTransport(service.transport)
    consumer = Consumer(orders, transport=faulty, **FAST, enable_auto_commit=False)
    _until(_held(consumer, 4), consumer)
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
