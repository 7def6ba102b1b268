"""Undecodable batches and batches that expand: a consumer raises, skips or hands over, and bounds what it decodes."""

from typing import Any

import pytest

from penstock import Producer, Transaction, Transformer
from penstock.errors import CorruptError, InvalidError
from penstock.model import ConsumerRecord, TopicPartition, UndecodableBatch
from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until
from tests.support.poison import bomb, put_batch, undecodable_batch

FAST: dict[str, Any] = {"fetch_wait_ms": 10, "retry_backoff_ms": 1}
P0, P1 = (TopicPartition("orders", number) for number in range(2))


@pytest.fixture
def poisoned(service: MemoryPenstock) -> str:
    """Partition 0 holds the records 0 and 6, and between them a batch of 5 offsets that nobody can decode."""
    service.create_topic("orders", partitions=2)
    send(service, b"first")
    put_batch(service.transport, "orders", undecodable_batch(5))
    send(service, b"last")
    return "orders"


def send(service: MemoryPenstock, value: bytes, partition: int = 0) -> None:
    with service.producer() as producer:
        producer.send("orders", value, partition=partition)


def take(consumer: Any, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    until(lambda: len(records) >= count, step=lambda: records.extend(consumer.poll(timeout_ms=20)))
    return records


def values(records: list[ConsumerRecord]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


def test_poll_raises_with_the_place_and_the_way_out_until_the_application_seeks(
    clients: ClientKind, poisoned: str
) -> None:
    with clients.consumer(poisoned, **FAST) as consumer:
        assert values(take(consumer, 1)) == [(0, b"first")]
        for _ in range(2):
            with pytest.raises(CorruptError, match=r"partition 0 of topic 'orders'.*seek to 6 to skip it") as caught:
                take(consumer, 1)
            assert caught.value.facts == {"topic": "orders", "partition": 0, "base_offset": 1, "next_offset": 6}
        consumer.seek(P0, caught.value.facts["next_offset"])
        assert values(take(consumer, 1)) == [(6, b"last")]


def test_the_records_of_other_partitions_are_returned_when_one_partition_raises(
    clients: ClientKind, service: MemoryPenstock, poisoned: str
) -> None:
    found: list[ConsumerRecord] = []
    raised: list[CorruptError] = []
    for number in range(5):
        send(service, b"%d" % number, partition=1)

    with clients.consumer(poisoned, max_poll_records=3, **FAST) as consumer:

        def step() -> None:
            try:
                found.extend(consumer.poll(timeout_ms=20))
            except CorruptError as error:
                raised.append(error)

        until(lambda: len(found) == 6 and len(raised) > 0, step=step)

    assert sorted(values(found)) == [(0, b"0"), (0, b"first"), (1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]


def test_skip_goes_on_behind_the_batch_and_counts_it(clients: ClientKind, poisoned: str) -> None:
    with clients.consumer(poisoned, on_undecodable="skip", **FAST) as consumer:
        assert values(take(consumer, 2)) == [(0, b"first"), (6, b"last")]
        assert consumer.skipped_batches() == {P0: 1}
        assert consumer.position(P0) == 7


def test_iteration_skips_many_batches_of_one_answer(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders")
    put_batch(service.transport, "orders", b"".join(undecodable_batch(50_000) for _ in range(200)))
    send(service, b"behind")

    with clients.consumer("orders", on_undecodable="skip", **FAST) as consumer:
        assert values([next(consumer)]) == [(10_000_000, b"behind")]
        assert consumer.poll(timeout_ms=0) == []
        assert consumer.skipped_batches() == {P0: 200}


def test_the_callback_gets_the_raw_batch_before_the_consumer_goes_on(clients: ClientKind, poisoned: str) -> None:
    handed: list[UndecodableBatch] = []
    with clients.consumer(poisoned, on_undecodable=handed.append, **FAST) as consumer:
        assert values(take(consumer, 2)) == [(0, b"first"), (6, b"last")]
        assert consumer.skipped_batches() == {P0: 1}
    [batch] = handed
    assert (batch.topic, batch.partition, batch.offset, batch.next_offset) == ("orders", 0, 1, 6)
    assert batch.data[8:] == undecodable_batch(5)[8:]  # the base offset is the log's
    assert isinstance(batch.error, CorruptError)


def test_the_consumer_stays_at_the_batch_when_the_callback_raises(clients: ClientKind, poisoned: str) -> None:
    answers = [RuntimeError("the dead-letter topic is away"), None]

    def hand_over(_: UndecodableBatch) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    with clients.consumer(poisoned, on_undecodable=hand_over, **FAST) as consumer:
        assert values(take(consumer, 1)) == [(0, b"first")]
        with pytest.raises(RuntimeError, match="dead-letter"):
            take(consumer, 1)
        assert consumer.position(P0) == 1
        assert values(take(consumer, 1)) == [(6, b"last")]
    assert not answers


def test_a_coroutine_function_may_be_the_callback_of_an_async_consumer(service: MemoryPenstock, poisoned: str) -> None:
    import asyncio

    handed: list[int] = []

    async def hand_over(batch: UndecodableBatch) -> None:
        await asyncio.sleep(0)
        handed.append(batch.base_offset)

    async def run() -> list[ConsumerRecord]:
        async with service.async_consumer(poisoned, on_undecodable=hand_over, **FAST) as reader:
            return [await anext(reader), await anext(reader), *await reader.poll(timeout_ms=0)]

    assert values(asyncio.run(run())) == [(0, b"first"), (6, b"last")]
    assert handed == [1]


def test_a_seek_by_the_callback_decides_where_the_partition_goes_on(service: MemoryPenstock, poisoned: str) -> None:
    seen: list[int] = []

    def back_to_the_start(batch: UndecodableBatch) -> None:
        seen.append(batch.base_offset)
        consumer.seek(P0, 0 if len(seen) == 1 else batch.next_offset)

    with service.consumer(poisoned, on_undecodable=back_to_the_start, **FAST) as consumer:
        assert values(take(consumer, 3)) == [(0, b"first"), (0, b"first"), (6, b"last")]
    assert seen == [1, 1]


def test_a_group_commits_past_a_skipped_batch(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    send(service, b"first")
    put_batch(service.transport, "orders", undecodable_batch(5))
    with clients.consumer("orders", group_id="g", on_undecodable="skip", **FAST) as consumer:
        take(consumer, 1)
        until(lambda: consumer.skipped_batches() == {P0: 1}, step=lambda: consumer.poll(timeout_ms=20))
        consumer.commit()
        assert consumer.committed(P0) == 6

    with clients.consumer("orders", group_id="g", **FAST) as consumer:  # raises, if it begins at the batch
        assert consumer.poll(timeout_ms=100) == []


def test_a_transformer_passes_over_a_batch_and_commits_behind_it_with_the_next_record(
    service: MemoryPenstock, poisoned: str
) -> None:
    service.create_topic("ledger")

    def book(record: ConsumerRecord, transaction: Transaction) -> None:
        transaction.send("ledger", record.value)

    producer = Producer(transactional_id="ledger-1", transport=service.transport, retry_backoff_ms=1)
    consumer = service.consumer(poisoned, group_id="g", delivery="exactly_once", on_undecodable="skip", **FAST)
    with producer, consumer:
        transformer = Transformer(consumer, producer, book)
        until(lambda: len(service.records("ledger")) == 2, step=lambda: transformer.run_once(timeout_ms=20))
        assert consumer.committed(P0) == 7
    assert [record.value for record in service.records("ledger")] == [b"first", b"last"]


def test_a_poll_decodes_no_more_than_its_bytes(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders")
    put_batch(service.transport, "orders", b"".join(bomb(3 * MIB) for _ in range(10)))

    with clients.consumer("orders", max_poll_bytes=8 * MIB, **FAST) as consumer:
        sizes: list[int] = []
        until(lambda: sum(sizes) == 10, step=lambda: sizes.append(len(consumer.poll(timeout_ms=20))))
        assert max(sizes) == 3  # a poll ends with the record that reaches its bytes
        assert consumer.position(P0) == 10


def test_a_poll_returns_one_record_that_is_larger_than_its_bytes(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders")
    put_batch(service.transport, "orders", bomb(2 * MIB) + bomb(2 * MIB))

    with clients.consumer("orders", max_poll_bytes=1, **FAST) as consumer:
        assert [record.offset for record in take(consumer, 1)] == [0]
        assert [record.offset for record in take(consumer, 1)] == [1]


@pytest.mark.parametrize("wrong", [{"on_undecodable": "ignore"}, {"max_poll_bytes": 0}])
def test_wrong_settings_are_refused(clients: ClientKind, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=next(iter(wrong))):
        clients.consumer("orders", **wrong)
