"""What Confluent's Schema Registry and Karapace ask of Kafka, in their order, by librdkafka and kafka-python.

No package registry that these tests use has one; test_registry_program.py starts one that you have. Both keep schemas
in the topic `_schemas`, of one partition and compacted. They write with acks=all, and read the topic from its start: a
record that they have just written tells where the end is. The members of the group `schema-registry`, of the protocol
type `sr`, elect the one that may write.
"""

import json
import threading
from contextlib import ExitStack, suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer
from kafka.coordinator.base import BaseCoordinator

from tests.kafka.running_gateway import RunningGateway
from tests.support.deadlines import until

TOPIC = "_schemas"
NOOP = {"keytype": "NOOP", "magic": 0}


class Election(BaseCoordinator):  # type: ignore[misc]  # kafka-python has no types
    """A member of the group, as Karapace's: its metadata are JSON, and so is what the leader tells all of them."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.leader: str | None = None
        self.consumer = KafkaConsumer(bootstrap_servers=address, group_id=None)
        super().__init__(
            self.consumer._client, group_id="schema-registry", session_timeout_ms=10_000, heartbeat_interval_ms=200
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._stay, name=f"registry-{name}", daemon=True)
        self._thread.start()

    def protocol_type(self) -> str:
        return "sr"

    def group_protocols(self) -> list[tuple[str, bytes]]:
        identity = {"version": 1, "host": self.name, "port": 8081, "scheme": "http", "master_eligibility": True}
        return [("v0", json.dumps(identity).encode())]

    def _perform_assignment(self, leader_id: str, protocol: str, members: list[Any]) -> dict[str, bytes]:
        del leader_id, protocol
        named = {each.member_id: json.loads(each.metadata) for each in members}
        chosen = min(named, key=lambda each: str(named[each]["host"]))
        told = json.dumps({"error": 0, "master": chosen, "master_identity": named[chosen]}).encode()
        return dict.fromkeys(named, told)

    async def _on_join_complete_async(self, generation: int, member_id: str, protocol: str, data: bytes) -> None:
        del generation, member_id
        assert protocol == "v0"
        self.leader = json.loads(data)["master_identity"]["host"]

    def _stay(self) -> None:
        """Join, and join anew whenever the group asks for that."""
        while not self._stopping.is_set():
            self.ensure_active_group(timeout_ms=100)

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()
        self.close(timeout_ms=5_000)
        self.consumer.close()


def stop(*members: Election) -> None:
    for each in members:
        each.stop()


class Registry:
    """The store of a registry."""

    def __init__(self, name: str, address: str) -> None:
        client = {"bootstrap.servers": address}
        self.schemas: dict[str, Any] = {}
        self._offset = -1
        self._make_topic(AdminClient(client))
        self._producer = Producer({**client, "acks": "all", "enable.idempotence": False, "retries": 0})
        self._consumer = Consumer({**client, "group.id": f"schema-registry-{name}-8081", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        self.read_to_end()

    def _make_topic(self, admin: AdminClient) -> None:
        if TOPIC not in admin.list_topics(timeout=30).topics:
            brokers = len(admin.describe_cluster().result().nodes)
            wanted = NewTopic(TOPIC, 1, min(3, brokers), config={"cleanup.policy": "compact"})
            with suppress(KafkaException):  # another registry was faster
                admin.create_topics([wanted])[TOPIC].result()
        assert len(admin.list_topics(timeout=30).topics[TOPIC].partitions) == 1
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"

    def write(self, key: dict[str, Any], value: dict[str, Any] | None) -> int:
        """The record's offset, once every copy has it."""
        written: list[Message] = []
        self._producer.produce(
            TOPIC,
            key=json.dumps(key),
            value=None if value is None else json.dumps(value),
            on_delivery=lambda error, message: written.append(message) if error is None else None,
        )
        self._producer.flush(30)
        [message] = written
        return int(message.offset() or 0)

    def read_to_end(self) -> None:
        end = self.write(NOOP, None)
        while self._offset < end:
            message = self._consumer.poll(30)
            assert message is not None
            assert message.error() is None
            key, value, offset = message.key(), message.value(), message.offset()
            assert key is not None
            assert offset is not None
            self._offset = offset
            if json.loads(key) != NOOP and value is not None:
                self.schemas[key.decode()] = json.loads(value)
            else:
                self.schemas.pop(key.decode(), None)

    def register(self, subject: str, version: int, schema: str) -> None:
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        self.write(key, {"subject": subject, "version": version, "id": version, "schema": schema, "deleted": False})
        self.read_to_end()

    def close(self) -> None:
        self._consumer.close()


def test_registry_finds_its_schemas_again_and_a_second_one_sees_them(gateway: RunningGateway) -> None:
    first = Registry("a", gateway.address)
    first.register("orders-value", 1, '"string"')
    first.register("orders-value", 2, '"bytes"')
    first.write({"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}, None)
    first.read_to_end()

    second = Registry("b", gateway.address)

    assert second.schemas == first.schemas
    assert [each["schema"] for each in second.schemas.values()] == ['"bytes"']
    second.register("carts-value", 1, '"int"')
    first.read_to_end()
    assert sorted(each["schema"] for each in first.schemas.values()) == ['"bytes"', '"int"']
    for each in (first, second):
        each.close()


def test_group_elects_one_leader_and_another_when_that_one_leaves(gateway: RunningGateway) -> None:
    members: dict[str, Election] = {}
    with ExitStack() as stack:
        stack.callback(lambda: stop(*members.values()))
        for name in ("b", "a"):
            members[name] = Election(name, gateway.address)
            until(lambda leader=name: {each.leader for each in members.values()} == {leader})  # type: ignore[misc]

        members.pop("a").stop()

        until(lambda: members["b"].leader == "b")
