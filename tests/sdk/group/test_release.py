"""Partitions that the group revokes while their owner does not poll: released if all that was returned is committed."""

from typing import Any

import pytest

from penstock import LeaseLostError
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.client_kinds import ClientKind
from tests.sdk.group.group_fixtures import moving, until_heard
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.sdk.polling import has, poll_count, poll_until

FAST: dict[str, Any] = {
    "group_id": "g",
    "fetch_wait_ms": 10,
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 250,
    "max_poll_records": 1_000,
}
MANUAL = FAST | {"enable_auto_commit": False}


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=4)
    with service.producer() as producer:
        for number in range(40):
            producer.send("orders", b"%d" % number, partition=number % 4)
    return "orders"


def _revoked(service: MemoryPenstock, faulty: FaultyTransport, other: Any) -> list[TopicPartition]:
    """The partitions that the group revokes, once the member behind the transport has heard of it."""
    assert poll_until(lambda _: moving(service), other) == []
    until_heard(faulty)
    return moving(service)


@pytest.mark.parametrize("settings", [MANUAL, FAST | {"delivery": "at_most_once"}], ids=["committed", "at_most_once"])
def test_partition_moves_without_a_poll_of_its_owner_when_all_of_it_is_committed(
    clients: ClientKind, orders: str, settings: dict[str, Any]
) -> None:
    with clients.consumer(orders, **settings) as busy, clients.consumer(orders, **settings) as other:
        poll_count(40, busy)
        if settings is MANUAL:
            busy.commit()
        assert poll_until(has(2, other), other) == []
        assert not set(busy.assignment()) & set(other.assignment())
        assert [other.position(each) for each in other.assignment()] == [10, 10]


def test_commit_that_lets_a_partition_go_is_not_refused_when_it_is_made_again(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    with clients.consumer(orders, transport=faulty, **MANUAL) as busy, clients.consumer(orders, **MANUAL) as other:
        poll_count(40, busy)
        assert len(_revoked(service, faulty, other)) == 2
        offsets = {TopicPartition(orders, number): 10 for number in range(4)}
        busy.commit(offsets)
        assert len(busy.assignment()) == 2
        busy.commit(offsets)
        gone = next(each for each in offsets if each not in busy.assignment())
        with pytest.raises(LeaseLostError):
            busy.commit({gone: 11})


@pytest.mark.parametrize(
    "settings",
    [MANUAL, FAST | {"auto_commit_interval_ms": 600_000}, MANUAL | {"delivery": "exactly_once"}],
    ids=["manual", "auto", "exactly_once"],
)
def test_partition_waits_for_a_poll_when_returned_records_are_not_committed(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str, settings: dict[str, Any]
) -> None:
    with clients.consumer(orders, transport=faulty, **settings) as busy, clients.consumer(orders, **settings) as other:
        poll_count(40, busy)
        revoked_partitions = _revoked(service, faulty, other)
        assert len(revoked_partitions) == 2
        busy.poll(timeout_ms=0)
        assert not set(busy.assignment()) & set(revoked_partitions)


def test_partition_waits_for_a_poll_when_there_is_an_on_revoked(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    revoked: list[TopicPartition] = []
    with (
        clients.consumer(orders, transport=faulty, **MANUAL, on_revoked=revoked.extend) as busy,
        clients.consumer(orders, **MANUAL) as other,
    ):
        poll_count(40, busy)
        busy.commit()
        revoked_partitions = _revoked(service, faulty, other)
        assert revoked == []
        busy.poll(timeout_ms=0)
        assert revoked == revoked_partitions


def test_partition_that_is_being_iterated_over_waits(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    with clients.consumer(orders, transport=faulty, **MANUAL) as busy, clients.consumer(orders, **MANUAL) as other:
        first = next(busy)
        busy.commit()
        held = TopicPartition(orders, first.partition)  # the group may revoke it, or not
        poll_until(lambda _: len(busy.assignment()) < 4, other)
        assert held in busy.assignment()
        poll_until(lambda _: set(moving(service)) <= {held}, other)
        assert next(busy).partition in (held.partition, *(each.partition for each in busy.assignment()))
