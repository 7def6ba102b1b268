"""A program's own partitioner: when it is asked, what it may give, and what happens when its partition is closed."""

import asyncio
import logging

import pytest

from penstock import InvalidError, Producer
from penstock.producer.batching.accumulator import Accumulator
from penstock.producer.key_hashing import Partitioner
from penstock.producer.settings import ProducerSettings
from penstock.testing import MemoryPenstock
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.index import partition_closed
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.producer.batching.accumulator_fixtures import new_topic, values_of

DEADLINE_S = 30.0
CLOSED = partition_closed(PartitionKey(TopicId("t"), Partition(2)), 2)


def by_length(topic: str, key: bytes | None, partitions: int) -> int | None:
    """Keys by their length; no choice for records without one."""
    return None if key is None else len(key) % partitions


def test_partitioner_chooses_where_send_names_no_partition(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    asked: list[tuple[str, bytes | None, int]] = []

    def choose(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append((topic, key, partitions))
        return 3

    with clients.producer(partitioner=choose) as producer:
        sent = [
            producer.send("orders", b"1", key="a"),
            producer.send("orders", b"2", key=bytearray(b"b")),
            producer.send("orders", b"3"),
            producer.send("orders", b"4", key=b"a", partition=1),
        ]
        assert [each.result(DEADLINE_S).partition for each in sent] == [3, 3, 3, 1]
    assert asked == [("orders", b"a", 4), ("orders", b"b", 4), ("orders", None, 4)]


def test_producer_chooses_when_the_partitioner_gives_none(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with clients.producer(partitioner=lambda *_: None) as producer:
        sent = producer.send("orders", b"1", key=b"whale")
        keyless = producer.send("orders", b"2")
        assert sent.result(DEADLINE_S).partition == partition_for_key(b"whale", 4)
        assert keyless.result(DEADLINE_S).partition in range(4)


@pytest.mark.parametrize("wrong", [4, -1, 1.0, True, "1"])
def test_send_fails_and_names_the_value_when_the_partitioner_gives_no_partition(
    clients: ClientKind, service: MemoryPenstock, wrong: object
) -> None:
    service.create_topic("orders", 4)
    told = f"partitioner gives {wrong!r} for the key b'k' of topic 'orders': .* 0 to 3"
    with clients.producer(partitioner=lambda *_: wrong) as producer, pytest.raises(InvalidError, match=told):
        producer.send("orders", b"1", key=b"k")
    assert service.records("orders") == []


def test_error_of_the_partitioner_is_that_of_send(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with clients.producer(partitioner=lambda *_: 1 // 0) as producer, pytest.raises(ZeroDivisionError):
        producer.send("orders", b"1", key=b"k")
    assert service.records("orders") == []


def test_partitioner_counts_from_the_first_partition_that_takes_records(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders", 2, {"ordering_on_change": "wait"})
    service.admin().set_partitions("orders", 3)
    with clients.producer(partitioner=lambda topic, key, partitions: partitions - 1) as producer:
        assert producer.send("orders", b"1", key=b"k").result(DEADLINE_S).partition == 4


def test_partitioner_chooses_for_delayed_records_and_in_transactions(service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with service.producer(transactional_id="shop", partitioner=lambda *_: 2) as producer:
        with producer.transaction() as transaction:
            sent = [transaction.send("orders", b"1"), transaction.send("orders", b"2", key=b"k")]
        assert [each.result(DEADLINE_S).partition for each in sent] == [2, 2]
        assert producer.send("orders", b"3", delay_ms=3_600_000).result(DEADLINE_S).partition == 2


def test_partitioner_chooses_in_transactions_of_asyncio(service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)

    async def sent() -> int:
        async with service.async_producer(transactional_id="shop", partitioner=lambda *_: 2) as producer:
            async with producer.transaction() as transaction:
                future = await transaction.send("orders", b"1", key=b"k")
            return (await future).partition

    assert asyncio.run(sent()) == 2


def test_keyless_record_for_a_compacted_topic_is_refused_with_a_partitioner_too(service: MemoryPenstock) -> None:
    service.create_topic("table", 2, {"cleanup_policy": "compact"})
    with service.producer(partitioner=lambda *_: 0) as producer, pytest.raises(InvalidError, match="compacted"):
        producer.send("table", b"1")


@pytest.mark.parametrize("wrong", [3, "by key", {b"k": 1}])
def test_partitioner_is_refused_when_it_is_no_function(wrong: object) -> None:
    with pytest.raises(InvalidError, match="partitioner="):
        Producer(partitioner=wrong, transport=MemoryPenstock().transport)  # type: ignore[arg-type]  # the point


def test_partitioner_is_refused_together_with_salted_keys() -> None:
    with pytest.raises(InvalidError, match="partitioner and salted_keys"):
        ProducerSettings(partitioner=by_length, salted_keys={b"k": 2})


def moved(partitioner: Partitioner) -> dict[bytes | None, int]:
    """Where the records of partition 2 go once it is closed, and the topic has two partitions."""
    accumulator = Accumulator(ProducerSettings(partitioner=partitioner, linger_ms=0).accumulator(), lambda _: 0)
    topic = new_topic()
    for key in (b"k", b"ke", b"key"):
        accumulator.append(topic, 2, key, key, (), 5, 0)
    accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0)
    return {value: entry.queue.partition for entry in accumulator.drain(30) for value in values_of(entry)}


def test_records_of_a_closed_partition_go_where_the_partitioner_says() -> None:
    assert moved(by_length) == {b"k": 1, b"ke": 0, b"key": 1}


@pytest.mark.parametrize("broken", [lambda *_: 1 // 0, lambda *_: 2])
def test_records_of_a_closed_partition_go_by_their_keys_when_the_partitioner_fails(
    broken: Partitioner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert moved(broken) == {key: partition_for_key(key, 2) for key in (b"k", b"ke", b"key")}
    assert "the partitioner has failed for a record whose partition was closed" in caplog.text
