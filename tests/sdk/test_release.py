"""Partitions that the group wants back while their owner does not poll: released if nothing of them is in its hands."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import LeaseLostError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.shells import Shell

DEADLINE_S = 30
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


def _until(holds: Callable[[], object], poll: Callable[[], list[ConsumerRecord]]) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        records += poll()
    return records


def _read(consumer: Any, count: int = 40) -> None:
    read: list[ConsumerRecord] = []
    _until(lambda: len(read) >= count, lambda: read.extend(found := consumer.poll(timeout_ms=50)) or found)


def _wanted_back(consumer: Any, other: Any) -> list[TopicPartition]:
    """What the group has told `consumer` to let go of, which it still holds."""
    membership = consumer._core.membership
    assert _until(membership.to_revoke, lambda: other.poll(timeout_ms=20)) == []
    beats = membership._sequence
    assert _until(lambda: membership._sequence >= beats + 2, lambda: other.poll(timeout_ms=20)) == []
    wanted: list[TopicPartition] = membership.to_revoke()
    return wanted


@pytest.mark.parametrize("settings", [MANUAL, FAST | {"delivery": "at_most_once"}], ids=["committed", "at_most_once"])
def test_partition_moves_without_a_poll_of_its_owner_when_all_of_it_is_committed(
    shell: Shell, orders: str, settings: dict[str, Any]
) -> None:
    with shell.consumer(orders, **settings) as busy, shell.consumer(orders, **settings) as other:
        _read(busy)
        if settings is MANUAL:
            busy.commit()
        assert _until(lambda: len(other.assignment()) == 2, lambda: other.poll(timeout_ms=20)) == []
        assert not set(busy.assignment()) & set(other.assignment())
        assert [other.position(each) for each in other.assignment()] == [10, 10]


def test_commit_that_lets_a_partition_go_is_not_refused_when_it_is_made_again(shell: Shell, orders: str) -> None:
    with shell.consumer(orders, **MANUAL) as busy, shell.consumer(orders, **MANUAL) as other:
        _read(busy)
        assert len(_wanted_back(busy, other)) == 2
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
def test_partition_waits_for_a_poll_when_what_was_handed_out_may_not_be_dealt_with(
    shell: Shell, orders: str, settings: dict[str, Any]
) -> None:
    with shell.consumer(orders, **settings) as busy, shell.consumer(orders, **settings) as other:
        _read(busy)
        wanted = _wanted_back(busy, other)
        assert len(wanted) == 2
        busy.poll(timeout_ms=0)
        assert not set(busy.assignment()) & set(wanted)


def test_partition_waits_for_a_poll_when_the_application_is_to_be_told_before(shell: Shell, orders: str) -> None:
    told: list[TopicPartition] = []
    with shell.consumer(orders, **MANUAL, on_revoked=told.extend) as busy, shell.consumer(orders, **MANUAL) as other:
        _read(busy)
        busy.commit()
        wanted = _wanted_back(busy, other)
        assert told == []
        busy.poll(timeout_ms=0)
        assert told == wanted


def test_partition_that_is_being_iterated_over_waits(shell: Shell, orders: str) -> None:
    with shell.consumer(orders, **MANUAL) as busy, shell.consumer(orders, **MANUAL) as other:
        first = next(busy)
        busy.commit()
        held = TopicPartition(orders, first.partition)  # which the group may want back, or not
        _until(lambda: len(busy.assignment()) < 4, lambda: other.poll(timeout_ms=20))
        assert held in busy.assignment()
        assert set(busy._core.membership.to_revoke()) <= {held}
        assert next(busy).partition in (held.partition, *(each.partition for each in busy.assignment()))
