"""Kafka's producers against the gateway, in front of a service in memory."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway

COUNT = 200


def _values(service: MemoryPenstock, partition: int = 0) -> list[bytes | None]:
    return [each.value for each in service.records("orders") if each.partition == partition]


@pytest.mark.parametrize(
    "settings",
    [
        {"enable.idempotence": False, "acks": "all"},
        {"enable.idempotence": False, "acks": "1", "compression.type": "zstd"},
        {"enable.idempotence": True, "compression.type": "lz4"},
    ],
)
def test_librdkafka_records_arrive_once_and_in_order(gateway: RunningGateway, settings: dict[str, object]) -> None:
    # Small batches, many of them on their way at once.
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 0, "batch.num.messages": 7, **settings})
    offsets: list[int] = []
    for number in range(COUNT):
        producer.produce(
            "orders", str(number), partition=0, on_delivery=lambda error, sent: offsets.append(error or sent.offset())
        )
    assert producer.flush(30) == 0
    assert offsets == list(range(COUNT))
    assert _values(gateway.service) == [str(number).encode() for number in range(COUNT)]


def test_librdkafka_producer_without_acks_loses_nothing(gateway: RunningGateway) -> None:
    producer = Producer({"bootstrap.servers": gateway.address, "acks": "0"})
    for number in range(10):
        producer.produce("orders", str(number), partition=1)
    producer.flush(30)
    gateway.close()
    assert len(_values(gateway.service, 1)) == 10


def test_kafka_python_records_arrive_with_key_headers_and_time(gateway: RunningGateway) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.address, compression_type="gzip", enable_idempotence=True)
    sent = producer.send("orders", b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
    placed = sent.get(30)
    producer.close()
    (record,) = gateway.service.records("orders")
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
    assert (record.timestamp_ms, record.partition, record.offset) == (1_700_000_000_000, placed.partition, 0)


def test_aiokafka_records_arrive_once(gateway: RunningGateway) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=gateway.address, enable_idempotence=True) as producer:
            await asyncio.gather(*[producer.send_and_wait("orders", b"%d" % number) for number in range(20)])

    asyncio.run(run())
    assert sorted(each.value or b"" for each in gateway.service.records("orders")) == sorted(
        b"%d" % number for number in range(20)
    )


def test_record_larger_than_the_topic_takes_is_refused_and_the_next_is_stored(gateway: RunningGateway) -> None:
    gateway.service.admin().alter_topic("orders", {"max_batch_bytes": 2_000})
    producer = Producer({"bootstrap.servers": gateway.address, "enable.idempotence": False, "batch.num.messages": 1})
    errors: list[object] = []
    for value in (b"a", b"b" * 3_000, b"c"):
        producer.produce(
            "orders", value, partition=0, on_delivery=lambda error, _: errors.append(error and error.name())
        )
    producer.flush(30)
    assert sorted(map(str, errors)) == ["MSG_SIZE_TOO_LARGE", "None", "None"]
    assert _values(gateway.service) == [b"a", b"c"]
