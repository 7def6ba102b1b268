"""Kafka's consumers against the gateway, in front of a service in memory. Partitions are assigned by hand."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PyPartition

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes

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


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (-100, 1), (77, 1), (0, 0)])
def test_offset_that_cannot_be_is_out_of_range_and_takes_no_other_partition_along(
    gateway: RunningGateway, offset: int, code: int
) -> None:
    _fill(gateway.service, 0, 2)
    wanted = struct.pack(">iqi", 0, offset, 1_000) + struct.pack(">iqi", 1, 0, 1_000)
    body = struct.pack(">iiiibiH6sI", -1, 100, 1, 1_000, 0, 1, 6, b"orders", 2) + wanted
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(request_bytes(1, 4, 7, body))
        (topic,) = read_answer(link, 1, 4)[1].responses
    found = {each.partition_index: each for each in topic.partitions}
    assert found[0].error_code == code
    assert (found[1].error_code, bool(found[1].records)) == (0, True)


def test_reading_from_the_beginning_starts_behind_removed_records(gateway: RunningGateway, consumer: Consumer) -> None:
    _fill(gateway.service, 0, 30)
    gateway.service.admin().truncate("orders", {0: 5})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    assert _take(consumer, 1)[0][:2] == (0, 5)
