"""Each client of another maker does each deed through the gateway, in front of the deployed stack."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Admin, Producer
from tests.end_to_end.kafka.clients.client import AioKafka, ConfluentKafka, KafkaClient, KafkaPython
from tests.end_to_end.kafka.clients.faststream_clients import KINDS, FastStream
from tests.end_to_end.kafka.clients.programs import java, kafkajs, kcat
from tests.end_to_end.local_stack import NOW_MS, Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

CLIENTS: dict[str, Callable[[Path], KafkaClient]] = {
    "kcat": lambda _: kcat(),
    "confluent-kafka": lambda _: ConfluentKafka(),
    "kafka-python": lambda _: KafkaPython(),
    "aiokafka": lambda _: AioKafka(),
    "kafkajs": lambda _: kafkajs(),
    "java": java,
    **{name: lambda _, kind=kind: FastStream(kind) for name, kind in KINDS.items()},  # type: ignore[misc]
}
VALUES = [f"value {number}" for number in range(200)]


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KafkaClient:
    return CLIENTS[request.param](tmp_path_factory.mktemp("client"))


@pytest.fixture
def stored(stack: Stack) -> Callable[[str], list[str]]:
    """The values of a topic's first partition, as the SDK reads them."""

    def read(topic: str) -> list[str]:
        from penstock import Consumer, TopicPartition

        found: list[str] = []
        with Admin(transport=stack.transport()) as admin:
            end = admin.describe_topic(topic).offsets[0].high_watermark
        with Consumer(transport=stack.transport(), auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            while len(found) < end:
                found += [(each.value or b"").decode() for each in consumer.poll(timeout_ms=1_000)]
        return found

    return read


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
def test_client_produces_in_order(
    client: KafkaClient, servers: str, topic: str, stored: Callable[[str], list[str]], is_idempotent: bool
) -> None:
    client.produce(servers, topic, VALUES, is_idempotent=is_idempotent)
    assert stored(topic) == VALUES


def test_client_in_a_group_goes_on_at_its_committed_offset(
    client: KafkaClient, servers: str, stack: Stack, admin: Admin, topic: str
) -> None:
    _produce(stack, topic)
    assert client.consume(servers, topic, topic, len(VALUES)) == VALUES
    committed = {each.partition: each.offset for each in admin.group_offsets(topic)}
    assert committed[0] == len(VALUES)
    with Producer(transport=stack.transport(), compression_type="gzip") as producer:  # kafkajs has no zstd
        producer.send(topic, b"next", partition=0)
    assert client.consume(servers, topic, topic, 1) == ["next"]


def test_client_seeks_to_a_time(client: KafkaClient, servers: str, stack: Stack, topic: str) -> None:
    _produce(stack, topic)
    assert client.first_since(servers, topic, NOW_MS + 70) == "value 70"


def test_client_commits_and_aborts_transactions(
    client: KafkaClient, servers: str, topic: str, stored: Callable[[str], list[str]]
) -> None:
    client.transact(servers, topic, VALUES[:3], VALUES[3:6])
    assert stored(topic) == VALUES[3:6]


def test_client_creates_a_topic_and_describes_it(
    client: KafkaClient, servers: str, admin: Admin, request: pytest.FixtureRequest
) -> None:
    name = f"made.{request.node.callspec.params['client']}".replace(" ", ".")
    assert client.create(servers, name, 4) == 4
    assert len(admin.describe_topic(name).offsets) == 4


def _produce(stack: Stack, topic: str) -> None:
    with Producer(transport=stack.transport(), compression_type="gzip") as producer:  # kafkajs has no zstd
        for number, value in enumerate(VALUES):
            producer.send(topic, value.encode(), partition=0, timestamp_ms=NOW_MS + number)
