"""Share consumers that wait cost no call of the service, where the stage has wake-ups, and an append wakes them."""

from collections.abc import Iterator

import pytest
from confluent_kafka import ShareConsumer

from penstock import Admin, Producer
from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.kafka.running_gateway import RunningGateway, running_gateway
from tests.support.deadlines import until
from tests.support.fake_app_sync import FakeAppSync
from tests.support.waking_transport import KEYS, WakingTransport


@pytest.fixture
def transport() -> Iterator[WakingTransport]:
    with MemoryPenstock() as service, FakeAppSync(KEYS) as events:
        service.create_topic("orders")
        service.create_share_group("workers", "orders")
        yield WakingTransport(service.transport, events)


@pytest.fixture
def gateway(transport: WakingTransport) -> Iterator[RunningGateway]:
    with MemoryPenstock() as unused, running_gateway(unused, transport=ThreadedTransport(transport)) as running:
        yield running


def test_waiting_members_cost_no_call_until_an_append_wakes_one(
    transport: WakingTransport, gateway: RunningGateway
) -> None:
    consumers = [
        ShareConsumer({"bootstrap.servers": gateway.address, "group.id": "workers", "fetch.wait.max.ms": 50})
        for _ in range(2)
    ]
    for each in consumers:
        each.subscribe(["orders"])
    taken: list[bytes | None] = []

    def poll() -> None:
        for each in consumers:
            taken.extend(message.value() for message in each.poll(0.05) if not message.error())

    until(lambda: transport.armed() == 1, step=poll)
    figures = gateway.gateway.metrics._figures
    calls, asked = figures.fetch_calls, figures.requests["share_fetch"]
    until(lambda: figures.requests["share_fetch"] >= asked + 6, step=poll)
    assert figures.fetch_calls == calls
    with Producer(transport=transport, linger_ms=0) as producer:
        producer.send("orders", b"v")
    until(lambda: taken, step=poll)
    assert taken == [b"v"]
    for each in consumers:
        each.commit_sync()
        each.close()
    assert Admin(transport=transport).describe_share_group("workers").partitions[0].lag == 0
