"""A consumer at the end of its partition costs no call of the service, and is woken by one append."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.kafka.running_gateway import RunningGateway, running_gateway
from tests.support.deadlines import until
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import KEYS, WakingTransport


@pytest.fixture
def transport() -> Iterator[WakingTransport]:
    with MemoryPenstock() as service, FakeAppSync(KEYS) as events:
        service.create_topic("orders")
        yield WakingTransport(service.transport, events)


@pytest.fixture
def gateway(transport: WakingTransport) -> Iterator[RunningGateway]:
    with MemoryPenstock() as unused, running_gateway(unused, transport=ThreadedTransport(transport)) as running:
        yield running


def test_waiting_consumer_costs_no_call_until_it_is_woken(transport: WakingTransport, gateway: RunningGateway) -> None:
    from penstock import Producer

    consumer = Consumer({"bootstrap.servers": gateway.address, "group.id": "g", "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition("orders", 0, 0)])
    until(lambda: transport.armed() == 1, step=lambda: consumer.poll(0.05))
    calls, asked = len(transport.fetches), 'penstock_kafka_requests_total{api="fetch"}'
    before = _count(gateway, asked)
    until(lambda: _count(gateway, asked) >= before + 3, step=lambda: consumer.poll(0.05))
    assert len(transport.fetches) == calls
    with Producer(transport=transport, linger_ms=0) as producer:
        producer.send("orders", b"v")
    taken: list[bytes] = []
    until(lambda: taken, step=lambda: taken.extend(each.value() for each in consumer.consume(1, 0.05)))
    assert taken == [b"v"]
    until(lambda: transport.armed() == 1, step=lambda: consumer.poll(0.05))
    consumer.close()


def _count(gateway: RunningGateway, name: str) -> int:
    lines = gateway.gateway.metrics.text().splitlines()
    return next((int(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0)
