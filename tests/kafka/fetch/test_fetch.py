"""Kafka's consumers against the gateway, in front of a service in memory. Partitions are assigned by hand."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PyPartition

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway

COUNT = 300


def _fill(service: MemoryPenstock, first: int = 0, count: int = COUNT) -> None:
    with service.producer(linger_ms=0) as producer:
        for number in range(first, first + count):
            producer.send("orders", b"%d" % number, partition=number % 3)


@pytest.fixture
def consumer(gateway: RunningGateway) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": gateway.address, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": False})
    yield consumer
    consumer.close()


def _take(consumer: Consumer, count: int) -> list[tuple[int, int, bytes]]:
    taken: list[tuple[int, int, bytes]] = []
    while len(taken) < count:
        for each in consumer.consume(count - len(taken), 20):
            if each.error():
                raise KafkaException(each.error())
            taken.append((each.partition(), each.offset(), each.value()))
    return taken


def test_librdkafka_reads_all_records_in_order(gateway: RunningGateway, consumer: Consumer) -> None:
    _fill(gateway.service)
    consumer.assign([TopicPartition("orders", number, OFFSET_BEGINNING) for number in range(3)])
    taken = sorted(_take(consumer, COUNT))
    assert taken == [(p, offset, b"%d" % (offset * 3 + p)) for p in range(3) for offset in range(COUNT // 3)]


def test_waiting_consumer_gets_a_record_when_it_comes(gateway: RunningGateway, consumer: Consumer) -> None:
    consumer.assign([TopicPartition("orders", number, 0) for number in range(3)])
    assert consumer.poll(0.05) is None
    late = threading.Thread(target=_fill, args=(gateway.service, 4, 1))
    late.start()
    assert _take(consumer, 1) == [(1, 0, b"4")]
    late.join()


def test_kafka_python_reads_from_an_offset(gateway: RunningGateway) -> None:
    _fill(gateway.service, 0, 30)
    consumer = KafkaConsumer(bootstrap_servers=gateway.address, consumer_timeout_ms=20_000)
    consumer.assign([PyPartition("orders", 0)])
    consumer.seek(PyPartition("orders", 0), 6)
    assert [next(consumer).offset for _ in range(4)] == [6, 7, 8, 9]
    assert consumer.end_offsets([PyPartition("orders", 0)]) == {PyPartition("orders", 0): 10}
    consumer.close()


def test_aiokafka_reads_from_the_beginning(gateway: RunningGateway) -> None:
    _fill(gateway.service, 0, 9)

    async def run() -> list[bytes | None]:
        consumer = AIOKafkaConsumer(bootstrap_servers=gateway.address, auto_offset_reset="earliest")
        async with consumer:
            partition = AioPartition("orders", 2)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in range(3)]

    assert asyncio.run(run()) == [b"2", b"5", b"8"]


def test_offset_out_of_range_is_told(gateway: RunningGateway, consumer: Consumer) -> None:
    consumer.assign([TopicPartition("orders", 0, 77)])
    # librdkafka goes to the end by its setting auto.offset.reset, and reads the next record.
    assert consumer.poll(0.3) is None
    _fill(gateway.service, 0, 1)
    assert _take(consumer, 1) == [(0, 0, b"0")]


def test_reading_from_the_beginning_starts_behind_removed_records(gateway: RunningGateway, consumer: Consumer) -> None:
    _fill(gateway.service, 0, 30)
    gateway.service.admin().truncate("orders", {0: 5})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    assert _take(consumer, 1)[0][:2] == (0, 5)
