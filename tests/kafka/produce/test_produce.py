"""Kafka's producers against the gateway, in front of a service in memory."""

import asyncio
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import NO_TIME_MS
from penstock_kafka.checked_batches import check_crc, checked
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error
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


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("times", [(-5,), (1_700_000_000_000, -5, 1_700_000_000_000)])
def test_record_before_1970_is_refused_for_good_wherever_it_stands(
    gateway: RunningGateway, times: tuple[int, ...], is_transactional: bool
) -> None:
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {"compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 200, **settings})
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    told: list[str] = []
    for time_ms in times:
        producer.produce(
            "orders", b"v" * 100, partition=0, timestamp=time_ms, on_delivery=lambda error, _: told.append(error.name())
        )
    assert producer.flush(30) == 0
    assert set(told) == {"INVALID_TIMESTAMP"}
    assert gateway.service.records("orders") == []


@pytest.mark.parametrize("is_transactional", [False, True])
def test_compacted_topic_refuses_records_without_a_key_and_clients_learn_which(
    gateway: RunningGateway, is_transactional: bool
) -> None:
    gateway.service.create_topic("table", partitions=2, config={"cleanup_policy": "compact"})
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {}
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 200, **settings})
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    told: Counter[tuple[int, str]] = Counter()
    for number in range(9):
        for partition in (0, 1):
            key = None if partition == 0 and number % 3 == 0 else str(number)
            producer.produce(
                "table",
                "v",
                key=key,
                partition=partition,
                on_delivery=lambda error, sent: told.update([(sent.partition(), error.name() if error else "")]),
            )
    assert producer.flush(30) == 0
    assert told == {(0, "INVALID_RECORD"): 3, (0, "_INVALID_DIFFERENT_RECORD"): 6, (1, ""): 9}
    stored = 0 if is_transactional else 9  # the client aborts
    assert [each.partition for each in gateway.service.records("table")] == [1] * stored


def test_record_without_a_time_is_taken() -> None:
    data = encode([NewRecord(NO_TIME_MS, None, b"a"), NewRecord(7, None, b"b"), NewRecord(NO_TIME_MS, None, b"c")])
    assert checked(data).summary.max_timestamp_ms == 7


def test_only_a_crc_that_differs_is_worth_a_repeat() -> None:
    data = encode([NewRecord(7, None, b"a")])
    with pytest.raises(RequestRefused) as caught:
        check_crc(data[:-1] + b"!")
    assert caught.value.code is KafkaError.corrupt_message
    with pytest.raises(PenstockError) as torn:
        checked(data[:-1])
    assert kafka_error(torn.value) is KafkaError.invalid_record


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
