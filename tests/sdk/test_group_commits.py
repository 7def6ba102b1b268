"""What members of a group commit, under which leases, and what others go on from."""

import time

import pytest

from penstock import LeaseHeldError, LeaseLostError
from penstock.model import ConsumerRecord
from penstock.testing import MemoryPenstock
from tests.sdk.faulty_transport import FaultyTransport, answer, lost_request
from tests.sdk.group_setting import BEAT, DEADLINE_S, FAST, OFFSETS, PARTITIONS, Told, committed, held, send, until
from tests.sdk.shells import Shell


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    send(service, range(10))
    return "orders"


def test_handed_over_partition_is_committed_before_and_not_sooner(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    """No auto commit falls due here; what the last poll handed out counts as dealt with at the next."""
    with shell.consumer(orders, **FAST, auto_commit_interval_ms=600_000, max_poll_records=1_000) as first:
        records: list[ConsumerRecord] = []
        while len(records) < 40:
            records += first.poll()
        assert set(committed(service).values()) <= {0}
        with shell.consumer(orders, **FAST) as second:
            second.poll(timeout_ms=0)
            time.sleep(1)  # the group wants two partitions back meanwhile, and waits
            assert set(committed(service).values()) <= {0}
            assert until(held(second, 2), first, second) == []
            assert sorted(committed(service).values()) == [0, 0, 10, 10]
            assert [second.position(each) for each in second.assignment()] == [10, 10]


def test_lost_lease_is_dropped_without_commit_and_told(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    """The member's session ends while it cannot be heard of; another has committed further meanwhile."""
    told = Told()
    settings = FAST | {"session_timeout_ms": 2_000}
    faulty = FaultyTransport(service.transport)
    with shell.consumer(orders, transport=faulty, **settings, **told.settings()) as sleeper:
        assert until(lambda: len(told.partitions("on_assigned")) == 4, sleeper) is not None
        faulty.faults[BEAT] = [lost_request] * 10_000
        with shell.consumer(orders, **settings) as other:
            records = len(until(held(other, 4), other))
            deadline_s = time.monotonic() + DEADLINE_S
            while records < 40 and time.monotonic() < deadline_s:
                records += len(other.poll())
            other.commit()
            ahead = committed(service)
            with pytest.raises(LeaseLostError):
                sleeper.commit({PARTITIONS[0]: 1})
            assert committed(service) == ahead == dict.fromkeys(range(4), 10)
            until(lambda: told.partitions("on_lost") == [0, 1, 2, 3], sleeper)
            assert sleeper.assignment() == []
            faulty.faults[BEAT] = []
            until(held(sleeper, 2), sleeper, other)
            assert told.partitions("on_revoked") == []


def test_refused_commit_loses_that_partition_only(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    told = Told()
    with shell.consumer(orders, **FAST, **told.settings()) as consumer:
        until(held(consumer, 4), consumer)
        membership = consumer._core.membership
        lease = membership.owned[PARTITIONS[1]]
        object.__setattr__(lease, "lease_epoch", lease.lease_epoch + 7)
        with pytest.raises(LeaseLostError, match="lease"):
            consumer.commit(dict.fromkeys(PARTITIONS, 3))
        until(lambda: told.partitions("on_lost") == [1], consumer)
        assert committed(service) == {0: 3, 1: 0, 2: 3, 3: 3} or committed(service) == {0: 3, 2: 3, 3: 3}
        until(held(consumer, 4), consumer)


def test_at_most_once_commits_under_its_leases_before_it_hands_over(
    shell: Shell, service: MemoryPenstock, orders: str
) -> None:
    with shell.consumer(orders, **FAST, delivery="at_most_once") as consumer:
        taken = consumer.poll(4, timeout_ms=20_000)
        assert taken
        for record in taken:
            assert committed(service)[record.partition] > record.offset


def test_latest_holds_for_whoever_comes_after(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    """The first dies before it has read anything: what came since it started is not skipped by the next."""
    with shell.consumer(orders, **FAST, auto_offset_reset="latest") as first:
        until(lambda: committed(service) == dict.fromkeys(range(4), 10), first)
        send(service, range(10, 12))
        first.close(autocommit=False)
    with shell.consumer(orders, **FAST, auto_offset_reset="latest") as second:
        records: list[ConsumerRecord] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(records) < 8 and time.monotonic() < deadline_s:
            records += second.poll()
    assert sorted((each.partition, each.offset) for each in records) == [(p, o) for p in range(4) for o in (10, 11)]


def test_going_back_is_committed(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer(orders, **FAST, enable_auto_commit=False) as consumer:
        until(held(consumer, 4), consumer)
        consumer.commit(dict.fromkeys(PARTITIONS, 9))
        consumer.commit({PARTITIONS[2]: 4})
    assert committed(service) == {0: 9, 1: 9, 2: 4, 3: 9}


def test_transaction_commits_offsets_under_the_members_leases(service: MemoryPenstock, orders: str) -> None:
    with (
        service.consumer(orders, **FAST, enable_auto_commit=False) as first,
        service.consumer(orders, **FAST, enable_auto_commit=False) as second,
        service.producer(transactional_id="t") as producer,
    ):
        until(lambda: held(first, 2)() and held(second, 2)(), first, second)
        with producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(first.assignment(), 7), first)
        assert sorted(committed(service).values()) == [7, 7]
        with pytest.raises(LeaseLostError), producer.transaction() as transaction:
            transaction.send_offsets(dict.fromkeys(PARTITIONS, 9), second)
        assert sorted(committed(service).values()) == [7, 7]


def test_simple_consumer_does_not_commit_over_a_member(shell: Shell, service: MemoryPenstock, orders: str) -> None:
    with shell.consumer(orders, **FAST) as member, shell.consumer(group_id="g") as simple:
        until(held(member, 4), member)
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
            again = until(held(second, 2), first, second)
            deadline_s = time.monotonic() + DEADLINE_S
            while len(again) < 20 and time.monotonic() < deadline_s:
                again += second.poll(timeout_ms=20)
            assert {(each.partition, each.offset) for each in again} == {
                (partition.partition, offset) for partition in second.assignment() for offset in range(10)
            }
