"""Transactional producers of Kafka's clients against the gateway, in front of a service in memory.

Transactions, gateways that die, moves, second instances, lost and late requests in any order.
"""

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import RunningGateway, running_gateway
from tests.kafka.transactions.desk import run
from tests.kafka.transactions.mutants import MUTANTS, Mutant
from tests.kafka.transactions.programs import TOPIC, run_seed

_CALL_S = 30.0


def _producer(address: str) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t", "linger.ms": 2, "log_level": 0})
    producer.init_transactions(_CALL_S)
    return producer


def _values(service: MemoryPenstock, topic: str = "orders") -> list[bytes]:
    return sorted(each.value or b"" for each in service.records(topic))


@pytest.fixture
def service_of_orders() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=3)
        yield service


def test_librdkafka_commits_and_aborts(gateway: RunningGateway) -> None:
    producer = _producer(gateway.address)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number, partition=number)
        producer.flush(_CALL_S)
        if number == 1:
            producer.abort_transaction(_CALL_S)
        else:
            producer.commit_transaction(_CALL_S)
    assert _values(gateway.service) == [b"0", b"2"]


def test_librdkafka_is_fenced_by_another_instance(gateway: RunningGateway) -> None:
    old = _producer(gateway.address)
    old.begin_transaction()
    old.produce("orders", b"zombie", partition=0)
    old.flush(_CALL_S)
    _producer(gateway.address)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(_CALL_S)
    assert caught.value.args[0].fatal()
    assert _values(gateway.service) == []


def test_librdkafka_copies_with_the_offsets_of_its_group(gateway: RunningGateway) -> None:
    service = gateway.service
    service.create_topic("copies", partitions=3)
    with service.producer() as plain:
        for number in range(20):
            plain.send("orders", b"%d" % number, partition=number % 3)
    producer = _producer(gateway.address)
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders"])
    copied = 0
    while copied < 20:
        messages = consumer.consume(20, 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for each in messages:
            producer.produce("copies", each.value(), partition=each.partition())
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), _CALL_S)
        producer.commit_transaction(_CALL_S)
        copied += len(messages)
    consumer.close()
    assert _values(service, "copies") == _values(service)
    assert sum(each.offset for each in service.admin().group_offsets("g")) == 20


@pytest.mark.slow
def test_librdkafka_aborts_and_goes_on_when_its_gateway_was_started_anew(service_of_orders: MemoryPenstock) -> None:
    with running_gateway(service_of_orders) as first:
        port = first.port
        producer = _producer(first.address)
        producer.begin_transaction()
        producer.produce("orders", b"lost", partition=0)
        producer.flush(_CALL_S)
    with running_gateway(service_of_orders, port=port):
        producer.produce("orders", b"refused", partition=1)
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(_CALL_S)
        assert caught.value.args[0].txn_requires_abort()
        producer.abort_transaction(_CALL_S)
        producer.begin_transaction()
        producer.produce("orders", b"kept", partition=0)
        producer.commit_transaction(_CALL_S)
    assert _values(service_of_orders) == [b"kept"]


def test_aiokafka_commits_records_and_offsets_of_a_group_without_members(gateway: RunningGateway) -> None:
    async def run() -> None:
        made = AIOKafkaProducer(bootstrap_servers=gateway.address, transactional_id="a")
        async with made as producer, producer.transaction():
            await producer.send("orders", b"x", partition=0)
            await producer.send_offsets_to_transaction({TopicPartition("orders", 1): 5}, "g")

    asyncio.run(run())
    assert _values(gateway.service) == [b"x"]
    assert [each.offset for each in gateway.service.admin().group_offsets("g")] == [5]


STEPS = 90


def _run(seed: int) -> None:
    with MemoryPenstock() as service:
        service.create_topic(TOPIC, partitions=2)
        run(run_seed(service, seed, STEPS))


@pytest.mark.parametrize("seed", range(4))
def test_each_item_is_there_once_and_whole(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("seed", range(100, 300))
def test_each_item_is_there_once_and_whole_for_many_seeds(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seed_finds_the_defect(mutant: Mutant) -> None:
    with patch.object(mutant.place, mutant.attribute, mutant.defect):
        for seed in range(100, 300):
            try:
                _run(seed)
            except AssertionError:
                return
    raise AssertionError(f"no seed finds: {mutant.name}")
