import socket
from dataclasses import replace

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import SETTINGS, RunningGateway, read_answer, request_bytes, running_gateway


def test_librdkafka_finds_topics_and_the_broker(gateway: RunningGateway) -> None:
    found = AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=10)
    assert [(each.host, each.port) for each in found.brokers.values()] == [("127.0.0.1", gateway.port)]
    assert {name: sorted(topic.partitions) for name, topic in found.topics.items()} == {"orders": [0, 1, 2]}


def test_kafka_python_finds_the_topics_by_name(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    found = {each["name"]: each["error_code"] for each in admin.describe_topics(["orders", "none"])}
    assert found == {"orders": 0, "none": 3}
    admin.close()


def test_missing_topic_is_created_when_operator_and_client_want_it() -> None:
    settings = replace(SETTINGS, creates_topics=True, created_partitions=2)
    with MemoryPenstock() as service, running_gateway(service, settings) as gateway:
        client = {"bootstrap.servers": gateway.address, "allow.auto.create.topics": True}
        from confluent_kafka import Consumer

        consumer = Consumer({**client, "group.id": "g"})
        assert len(consumer.list_topics("made", timeout=10).topics["made"].partitions) == 2
        assert service.admin().describe_topic("made").topic.partitions == 2
        consumer.close()


def test_gateway_coordinates_every_group(gateway: RunningGateway) -> None:
    link = socket.create_connection(("127.0.0.1", gateway.port))
    link.sendall(request_bytes(10, 1, 1, b"\x00\x01g\x00") + request_bytes(10, 1, 2, b"\x00\x01g\x09"))
    group, unknown = read_answer(link, 10, 1)[1], read_answer(link, 10, 1)[1]
    assert (group.error_code, group.node_id, group.port) == (0, 1, gateway.port)
    assert (unknown.error_code, unknown.node_id) == (42, -1)
    link.close()


def test_cluster_is_the_gateway(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    cluster = admin.describe_cluster()
    assert [each["port"] for each in cluster["brokers"]] == [gateway.port]
    admin.close()
