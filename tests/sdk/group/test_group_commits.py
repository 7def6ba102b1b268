"""The commits of a group's members: their offsets, their leases, and where the next owner goes on."""

import json
from typing import Any

import pytest

from penstock import LeaseHeldError, LeaseLostError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.group.group_fixtures import (
    BEAT,
    FAST,
    OFFSETS,
    PARTITIONS,
    RebalanceRecorder,
    committed,
    moving,
    send,
    until_heard,
)
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_request
from tests.sdk.polling import has, poll_count, poll_until
from tests.support.deadlines import until


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    send(service, range(10))
    return "orders"


def test_handed_over_partition_is_committed_before_and_not_sooner(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    """No auto commit is due here. The records of one poll count as dealt with at the next."""
    with clients.consumer(
        orders, transport=faulty, **FAST, auto_commit_interval_ms=600_000, max_poll_records=1_000
    ) as first:
        poll_count(40, first)
        assert set(committed(service).values()) <= {0}
        with clients.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            until(lambda: len(moving(service)) == 2)
            until_heard(faulty)
            assert set(committed(service).values()) <= {0}
            assert poll_until(has(2, second), first, second) == []
            assert sorted(committed(service).values()) == [0, 0, 10, 10]
            assert [second.position(each) for each in second.assignment()] == [10, 10]


@pytest.mark.slow
def test_lost_partition_is_dropped_without_commit_and_on_lost_is_called(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    """The service does not hear of the member until its session ends. Another member commits further meanwhile."""
    recorder = RebalanceRecorder()
    settings = FAST | {"session_timeout_ms": 2_000}
    faulty = FaultyTransport(service.transport)
    with clients.consumer(orders, transport=faulty, **settings, **recorder.settings()) as sleeper:
        assert poll_until(lambda _: len(recorder.partitions("on_assigned")) == 4, sleeper) is not None
        faulty.faults[BEAT] = [lost_request] * 10_000
        with clients.consumer(orders, **settings) as other:
            poll_count(40, other)
            assert len(other.assignment()) == 4
            other.commit()
            ahead = committed(service)
            with pytest.raises(LeaseLostError):
                sleeper.commit({PARTITIONS[0]: 1})
            assert committed(service) == ahead == dict.fromkeys(range(4), 10)
            poll_until(lambda _: recorder.partitions("on_lost") == [0, 1, 2, 3], sleeper)
            assert sleeper.assignment() == []
            faulty.faults[BEAT] = []
            poll_until(has(2, sleeper), sleeper, other)
            assert recorder.partitions("on_revoked") == []


def test_refused_commit_loses_that_partition_only(
    clients: ClientKind, service: MemoryPenstock, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, call = RebalanceRecorder(), service.transport.call

    def with_old_lease(method: str, path: str, query: Any, headers: Any, body: bytes) -> Response:
        """Commits of partition 1 name a lease epoch that the member does not have."""
        if path == OFFSETS and body:
            commit = json.loads(body)
            for each in commit["offsets"]:
                each["lease_epoch"] += 7 * (each["partition"] == 1)
            body = json.dumps(commit).encode()
        return call(method, path, query, headers, body)

    with clients.consumer(orders, **FAST, **recorder.settings()) as consumer:
        poll_until(has(4, consumer), consumer)
        monkeypatch.setattr(service.transport, "call", with_old_lease)
        with pytest.raises(LeaseLostError, match="lease"):
            consumer.commit(dict.fromkeys(PARTITIONS, 3))
        poll_until(lambda _: recorder.partitions("on_lost") == [1], consumer)
        assert committed(service) == {0: 3, 1: 0, 2: 3, 3: 3} or committed(service) == {0: 3, 2: 3, 3: 3}
        poll_until(has(4, consumer), consumer)


def test_at_most_once_commits_under_its_leases_before_it_hands_over(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.consumer(orders, **FAST, delivery="at_most_once") as consumer:
        taken = consumer.poll(4, timeout_ms=20_000)
        assert taken
        for record in taken:
            assert committed(service)[record.partition] > record.offset


def test_latest_is_committed_so_that_the_next_owner_skips_nothing(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    """The first dies before it reads anything. The next does not skip the records that came since the first started."""
    with clients.consumer(orders, **FAST, auto_offset_reset="latest") as first:
        poll_until(lambda _: committed(service) == dict.fromkeys(range(4), 10), first)
        send(service, range(10, 12))
        first.close(autocommit=False)
    with clients.consumer(orders, **FAST, auto_offset_reset="latest") as second:
        records = poll_count(8, second)
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in (10, 11)]


def test_going_back_is_committed(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.consumer(orders, **FAST, enable_auto_commit=False) as consumer:
        poll_until(has(4, consumer), consumer)
        consumer.commit(dict.fromkeys(PARTITIONS, 9))
        consumer.commit({PARTITIONS[2]: 4})
    assert committed(service) == {0: 9, 1: 9, 2: 4, 3: 9}


def test_transaction_commits_offsets_under_the_members_leases(service: MemoryPenstock, orders: str) -> None:
    with (
        service.consumer(orders, **FAST, enable_auto_commit=False) as first,
        service.consumer(orders, **FAST, enable_auto_commit=False) as second,
        service.producer(transactional_id="t") as producer,
    ):
        poll_until(has(2, first, second), first, second)
        with producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(first.assignment(), 7), first)
        assert sorted(committed(service).values()) == [7, 7]
        with pytest.raises(LeaseLostError), producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(PARTITIONS, 9), second)
        assert sorted(committed(service).values()) == [7, 7]


def test_simple_consumer_does_not_commit_over_a_member(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.consumer(orders, **FAST) as member, clients.consumer(group_id="g") as simple:
        poll_until(has(4, member), member)
        simple.assign(PARTITIONS[:1])
        with pytest.raises(LeaseHeldError):
            simple.commit({PARTITIONS[0]: 5})


def test_hand_over_that_cannot_commit_goes_on_all_the_same(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    with clients.consumer(orders, transport=faulty, **FAST, auto_commit_interval_ms=600_000) as first:
        poll_count(40, first)
        faulty.faults[OFFSETS] = [answer(403, b"{}")]
        with clients.consumer(orders, **FAST) as second:
            again = poll_until(has(2, second), first, second)
            again += poll_count(20 - len(again), second)
            assert {(each.partition, each.offset) for each in again} == {
                (partition.partition, offset) for partition in second.assignment() for offset in range(10)
            }
