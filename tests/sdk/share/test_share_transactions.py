"""Records of a share group that a transaction accepts, with threads and for asyncio."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AsyncTransformer, InvalidError, ShareRecord, Transformer
from penstock.testing import MemoryPenstock
from tests.sdk.share.work_group import WorkGroup

Round = Callable[..., int]


@pytest.fixture(autouse=True)
def ledger(service: MemoryPenstock, workers: WorkGroup) -> None:
    service.create_topic("ledger")
    workers.append(b"1", b"2", b"3")


def _rounds(service: MemoryPenstock, transform: Callable[[ShareRecord], object], rounds: int) -> list[int]:
    def book(record: ShareRecord, transaction: Any) -> None:
        transaction.send("ledger", record.value)
        transform(record)

    with service.share_consumer(group_id="workers") as consumer, service.producer(transactional_id="t") as producer:
        transformer = Transformer(consumer, producer, book)
        return [transformer.run_once(timeout_ms=500) for _ in range(rounds)]


def _async_rounds(service: MemoryPenstock, transform: Callable[[ShareRecord], object], rounds: int) -> list[int]:
    async def book(record: ShareRecord, transaction: Any) -> None:
        await transaction.send("ledger", record.value)
        transform(record)

    async def run() -> list[int]:
        async with (
            service.async_share_consumer(group_id="workers") as consumer,
            service.async_producer(transactional_id="t") as producer,
        ):
            transformer = AsyncTransformer(consumer, producer, book)
            return [await transformer.run_once(timeout_ms=500) for _ in range(rounds)]

    return asyncio.run(run())


@pytest.fixture(params=[_rounds, _async_rounds], ids=["threads", "asyncio"])
def rounds(request: pytest.FixtureRequest) -> Callable[..., list[int]]:
    found: Callable[..., list[int]] = request.param
    return found


def test_records_are_accepted_with_their_effects(
    service: MemoryPenstock, workers: WorkGroup, rounds: Callable[..., list[int]]
) -> None:
    assert rounds(service, lambda _: None, 1) == [3]
    assert [each.value for each in service.records("ledger")] == [b"1", b"2", b"3"]
    assert workers.unfinished() == 0


def test_failed_round_has_no_effect_and_its_records_come_again(
    service: MemoryPenstock, workers: WorkGroup, rounds: Callable[..., list[int]]
) -> None:
    def fail(record: ShareRecord) -> None:
        if record.value == b"2":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rounds(service, fail, 1)
    assert service.records("ledger") == []
    assert workers.unfinished() == 3
    assert sum(rounds(service, lambda _: None, 3)) == 3
    assert len(service.records("ledger")) == 3
    assert workers.unfinished() == 0


def test_lost_lock_aborts_the_transaction(
    service: MemoryPenstock, workers: WorkGroup, rounds: Callable[..., list[int]]
) -> None:
    taken: list[bytes | None] = []

    def lose(record: ShareRecord) -> None:
        if not taken:
            workers.admin.reset_share_group("workers", "orders", to="earliest")
        taken.append(record.value)

    found = rounds(service, lose, 3)
    assert found[0] == 0
    assert sum(found) == 3
    assert len(service.records("ledger")) == 3
    assert workers.unfinished() == 0


def test_records_that_are_not_in_hand_are_refused(service: MemoryPenstock) -> None:
    with service.share_consumer(group_id="workers") as consumer, service.producer(transactional_id="t") as producer:
        record = next(consumer)
        consumer.accept(record)
        assert not consumer.is_held(record)
        with producer.transaction() as transaction, pytest.raises(InvalidError, match="acknowledged before"):
            transaction.accept(record, consumer)


def test_record_of_a_failed_transaction_is_not_accepted_by_the_next_poll(
    service: MemoryPenstock, workers: WorkGroup
) -> None:
    def book(consumer: Any, producer: Any) -> None:
        with producer.transaction() as transaction:
            transaction.accept(next(consumer), consumer)
            raise ZeroDivisionError

    with service.share_consumer(group_id="workers") as consumer, service.producer(transactional_id="t") as producer:
        with pytest.raises(ZeroDivisionError):
            book(consumer, producer)
        next(consumer)
    assert workers.unfinished() == 2
