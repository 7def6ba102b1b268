"""Kafka's admin clients against the gateway, in front of a service in memory."""

from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PyResource
from kafka.admin import ConfigResourceType as PyResourceType
from kafka.admin import NewTopic as PyTopic

from tests.kafka.running_gateway import RunningGateway

ROLE = "arn:aws:iam::111122223333:role/shop"


@pytest.fixture
def admin(gateway: RunningGateway) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.address})


def _refusal(future: Any) -> str:
    with pytest.raises(KafkaException) as refused:
        future.result()
    return str(refused.value.args[0].name())


def test_topic_is_created_altered_and_deleted(gateway: RunningGateway, admin: AdminClient) -> None:
    config = {"retention.ms": "3600000", "cleanup.policy": "compact", "compression.type": "producer"}
    admin.create_topics([NewTopic("made", 2, 3, config=config)])["made"].result()
    made = gateway.service.admin().describe_topic("made").topic
    assert (made.partitions, made.config["retention_ms"], made.config["cleanup_policy"]) == (2, 3_600_000, "compact")
    admin.create_partitions([NewPartitions("made", 5)])["made"].result()
    resource = ConfigResource(
        ResourceType.TOPIC,
        "made",
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("max.message.bytes", "2048", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result()
    (shown,) = [each.result() for each in admin.describe_configs([ConfigResource(ResourceType.TOPIC, "made")]).values()]
    assert {name: shown[name].value for name in ("retention.ms", "max.message.bytes", "cleanup.policy")} == {
        "retention.ms": "1209600000",
        "max.message.bytes": "2048",
        "cleanup.policy": "compact",
    }
    assert shown["retention.ms"].is_default
    assert not shown["max.message.bytes"].is_default
    assert gateway.service.admin().describe_topic("made").topic.partitions == 5
    admin.delete_topics(["made"])["made"].result()
    assert [each.name for each in gateway.service.admin().list_topics()] == ["orders"]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("orders", 1, 1), "TOPIC_ALREADY_EXISTS"),
        (NewTopic("no/name", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("x", 1, 4), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("x", 100_000, 1), "INVALID_PARTITIONS"),
        (NewTopic("x", 1, 1, config={"segment.bytes": "1"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, 1, config={"retention.ms": "1"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, 1, config={"message.timestamp.type": "LogAppendTime"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, replica_assignment=[[1]]), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
@pytest.mark.parametrize("only_checks", [False, True])
def test_topic_is_refused_with_kafkas_code(admin: AdminClient, topic: NewTopic, code: str, only_checks: bool) -> None:
    assert _refusal(admin.create_topics([topic], validate_only=only_checks)[topic.topic]) == code


def test_check_of_a_topic_creates_nothing(gateway: RunningGateway, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("x", 1, 1)], validate_only=True)["x"].result()
    assert [each.name for each in gateway.service.admin().list_topics()] == ["orders"]


def test_fewer_partitions_are_refused(admin: AdminClient) -> None:
    assert _refusal(admin.create_partitions([NewPartitions("orders", 3)])["orders"]) == "INVALID_PARTITIONS"
    assert _refusal(admin.create_partitions([NewPartitions("none", 3)])["none"]) == "UNKNOWN_TOPIC_OR_PART"


def test_records_are_deleted_below_an_offset_and_to_the_end(gateway: RunningGateway, admin: AdminClient) -> None:
    with gateway.service.producer() as producer:
        for number in range(20):
            producer.send("orders", b"v", partition=number % 2)
    wanted = [TopicPartition("orders", 0, 4), TopicPartition("orders", 1, -1), TopicPartition("orders", 2, 9)]
    found = admin.delete_records(wanted)
    assert [found[each].result().low_watermark for each in wanted[:2]] == [4, 10]
    assert _refusal(found[wanted[2]]) == "OFFSET_OUT_OF_RANGE"


def test_access_rules_are_made_shown_and_deleted(gateway: RunningGateway, admin: AdminClient) -> None:
    allow, prefixed, literal = AclPermissionType.ALLOW, ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    binding = AclBinding(ResourceType.TOPIC, "ord", prefixed, f"User:{ROLE}", "*", AclOperation.WRITE, allow)
    cluster = AclBinding(
        ResourceType.BROKER, "kafka-cluster", literal, "User:*", "*", AclOperation.CREATE, AclPermissionType.DENY
    )
    for future in admin.create_acls([binding, cluster]).values():
        future.result()
    rules = {(each.principal, each.operation, each.resource) for each in gateway.service.admin().list_acls()}
    assert rules == {(ROLE, "write", "topic:ord*"), ("*", "create", "service")}
    matching = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(matching).result() == [binding]
    assert [each.result() for each in admin.delete_acls([matching]).values()] == [[binding]]
    assert [each.resource for each in gateway.service.admin().list_acls()] == ["service"]


def test_access_rule_that_penstock_has_not_is_refused(admin: AdminClient) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        f"User:{ROLE}",
        "10.0.0.1",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    assert _refusal(admin.create_acls([binding])[binding]) == "INVALID_REQUEST"


def test_kafka_python_creates_and_describes(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    admin.create_topics([PyTopic(name="py", num_partitions=2, replication_factor=1)])
    assert {each["name"]: len(each["partitions"]) for each in admin.describe_topics(["py"])} == {"py": 2}
    admin.close()


def test_broker_shows_the_address_that_clients_are_told(gateway: RunningGateway, admin: AdminClient) -> None:
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    shown = admin.describe_configs([broker])[broker].result()
    assert shown["advertised.listeners"].value == f"PLAINTEXT://{gateway.address}"


def test_settings_have_the_types_that_kafka_gives_them(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    resources = [PyResource(PyResourceType.TOPIC, "orders"), PyResource(PyResourceType.BROKER, "1")]
    found = admin.describe_configs(resources, config_filter="all")
    settings = found["topic"]["orders"] | found["broker"]["1"]
    assert {name: each["config_type"] for name, each in settings.items()} == {
        "advertised.listeners": "STRING",
        "auto.create.topics.enable": "BOOLEAN",
        "cleanup.policy": "LIST",
        "compression.type": "STRING",
        "default.replication.factor": "INT",
        "delete.retention.ms": "LONG",
        "delete.topic.enable": "BOOLEAN",
        "max.message.bytes": "INT",
        "message.max.bytes": "INT",
        "message.timestamp.type": "STRING",
        "min.insync.replicas": "INT",
        "num.partitions": "INT",
        "penstock.index.tags": "BOOLEAN",
        "penstock.ordering.on.change": "STRING",
        "penstock.validate.records": "BOOLEAN",
        "retention.bytes": "LONG",
        "retention.ms": "LONG",
    }
    admin.close()
