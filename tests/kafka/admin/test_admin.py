"""Kafka's admin clients against the gateway, in front of a service in memory."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaException, ShareConsumer, TopicPartition
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

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import SETTINGS, RunningGateway, running_gateway

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
        (NewTopic("x", 1, 1, config={"segment.byte": "1"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, 1, config={"retention.ms": "1"}), "INVALID_CONFIG"),
        (NewTopic("x", 1, replica_assignment=[[2]]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewTopic("x", 1, replica_assignment=[[1, 2]]), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
@pytest.mark.parametrize("only_checks", [False, True])
def test_topic_is_refused_with_kafkas_code(admin: AdminClient, topic: NewTopic, code: str, only_checks: bool) -> None:
    assert _refusal(admin.create_topics([topic], validate_only=only_checks)[topic.topic]) == code


_OF_TOOLS = {  # Connect, Schema Registry, ksqlDB, Debezium and modules of Terraform send these
    "segment.bytes": "52428800",
    "segment.ms": "3600000",
    "compression.type": "lz4",
    "min.cleanable.dirty.ratio": "0.01",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
    "file.delete.delay.ms": "1",
    "unclean.leader.election.enable": "false",
    "flush.messages": "1",
    "message.timestamp.difference.max.ms": "1000",
    "message.format.version": "2.7",
}


def test_settings_of_tools_are_taken_with_a_warning(
    gateway: RunningGateway, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    config = {**_OF_TOOLS, "cleanup.policy": "compact"}
    admin.create_topics([NewTopic("x", 1, 1, config=config)])["x"].result()
    assert gateway.service.admin().describe_topic("x").topic.config["cleanup_policy"] == "compact"
    assert {name for name in _OF_TOOLS if f"setting {name}=" in caplog.text} == {*_OF_TOOLS}


@pytest.mark.parametrize("name", _OF_TOOLS)
def test_strict_gateway_refuses_settings_without_effect(name: str) -> None:
    settings = replace(SETTINGS, refuses_unknown_settings=True)
    with MemoryPenstock() as service, running_gateway(service, settings) as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.address})
        topic = NewTopic("x", 1, 1, config={name: _OF_TOOLS[name]})
        assert _refusal(admin.create_topics([topic])["x"]) == "INVALID_CONFIG"
        fixed = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
        admin.create_topics([NewTopic("y", 1, 1, config=fixed)])["y"].result()


def _change(
    admin: AdminClient, kind: ResourceType, name: str, *changes: tuple[str, str | None, AlterConfigOpType]
) -> Any:
    entries = [ConfigEntry(each, value, incremental_operation=operation) for each, value, operation in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    return admin.incremental_alter_configs([resource])[resource]


def test_policy_of_cleanup_is_a_list(gateway: RunningGateway, admin: AdminClient) -> None:
    def policy() -> object:
        return gateway.service.admin().describe_topic("orders").topic.config["cleanup_policy"]

    def change(value: str, operation: AlterConfigOpType) -> Any:
        return _change(admin, ResourceType.TOPIC, "orders", ("cleanup.policy", value, operation))

    change("compact", AlterConfigOpType.APPEND).result()
    assert policy() == "compact,delete"
    change("delete", AlterConfigOpType.SUBTRACT).result()
    assert policy() == "compact"
    assert _refusal(change("compact", AlterConfigOpType.SUBTRACT)) == "INVALID_CONFIG"
    other = ("retention.ms", "3600000", AlterConfigOpType.APPEND)
    assert _refusal(_change(admin, ResourceType.TOPIC, "orders", other)) == "INVALID_CONFIG"


def test_topic_and_partitions_may_be_assigned_to_the_one_broker(gateway: RunningGateway, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("x", 2, replica_assignment=[[1], [1]])])["x"].result()
    admin.create_partitions([NewPartitions("x", 4, replica_assignment=[[1], [1]])])["x"].result()
    assert gateway.service.admin().describe_topic("x").topic.partitions == 4
    wrong = NewPartitions("x", 6, replica_assignment=[[1]])
    assert _refusal(admin.create_partitions([wrong])["x"]) == "INVALID_REPLICA_ASSIGNMENT"


_GROUP = ResourceType.GROUP
_SET = AlterConfigOpType.SET


def test_settings_of_a_share_group_are_changed_and_shown(gateway: RunningGateway, admin: AdminClient) -> None:
    service = gateway.service.admin()
    service.create_share_group("workers", ["orders"])
    lock = ("share.record.lock.duration.ms", "15000", _SET)
    _change(admin, _GROUP, "workers", lock, ("share.session.timeout.ms", "60000", _SET)).result()
    assert service.describe_share_group("workers").group.config["lock_ms"] == 15_000
    resource = ConfigResource(_GROUP, "workers")
    shown = admin.describe_configs([resource])[resource].result()
    assert {name: each.value for name, each in shown.items()} == {
        "share.auto.offset.reset": "earliest",
        "share.partition.max.record.locks": "20000",
        "share.record.lock.duration.ms": "15000",
    }
    for name, value in (("share.lock", "1"), ("share.record.lock.duration.ms", "soon"), (lock[0], "1")):
        assert _refusal(_change(admin, _GROUP, "workers", (name, value, _SET))) == "INVALID_CONFIG"


def test_share_group_gets_a_dead_letter_topic_and_a_bound_by_kafkas_names(
    gateway: RunningGateway, admin: AdminClient
) -> None:
    service = gateway.service.admin()
    service.create_topic("dead")
    service.create_share_group("workers", ["orders"])
    letters = "errors.deadletterqueue.topic.name"
    wanted = [(letters, "dead"), ("share.delivery.count.limit", "7"), ("share.partition.max.record.locks", "200")]
    _change(admin, _GROUP, "workers", *((name, value, _SET) for name, value in wanted)).result()
    config = service.describe_share_group("workers").group.config
    assert (config["dead_letter_topic"], config["deliveries_max"], config["in_flight_max"]) == ("dead", 7, 200)
    resource = ConfigResource(_GROUP, "workers")
    shown = admin.describe_configs([resource])[resource].result()
    assert {name: shown[name].value for name, _ in wanted} == dict(wanted)
    _change(admin, _GROUP, "workers", (letters, "", _SET)).result()
    config = service.describe_share_group("workers").group.config
    assert (config["dead_letter_topic"], config["deliveries_max"]) == (None, None)
    for name, value in ((letters, "no such topic"), ("share.partition.max.record.locks", "0")):
        assert _refusal(_change(admin, _GROUP, "workers", (name, value, _SET))) != "NO_ERROR"


def test_settings_of_a_group_wait_until_a_member_makes_it(gateway: RunningGateway, admin: AdminClient) -> None:
    _change(admin, _GROUP, "team/new", ("share.auto.offset.reset", "earliest", _SET)).result()
    with gateway.service.producer() as producer:
        producer.send("orders", b"early")
    client = {"bootstrap.servers": gateway.address, "group.id": "team/new"}
    consumer = ShareConsumer(client)
    consumer.subscribe(["orders"])
    found: list[bytes] = []
    while not found:
        found += [each.value() for each in consumer.poll(1.0) if each.error() is None]
    consumer.close()
    assert found == [b"early"]
    [made] = gateway.service.admin().list_share_groups()
    assert (made.group, made.config["start"]) == ("kafka..team.2fnew", "earliest")


def test_group_that_does_not_exist_keeps_no_setting_that_it_could_not_begin_with(admin: AdminClient) -> None:
    for name, value in (
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.record.lock.duration.ms", "1"),
        ("share.delivery.count.limit", "0"),
    ):
        assert _refusal(_change(admin, _GROUP, "new", (name, value, _SET))) == "INVALID_CONFIG"


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


def test_prefix_of_groups_is_about_names_that_the_service_has_in_another_form(
    gateway: RunningGateway, admin: AdminClient
) -> None:
    def of(prefix: str) -> AclBinding:
        prefixed, deny = ResourcePatternType.PREFIXED, AclPermissionType.DENY
        return AclBinding(ResourceType.GROUP, prefix, prefixed, "User:*", "*", AclOperation.READ, deny)

    admin.create_acls([of("team")])[of("team")].result()
    found = [each.resource for each in gateway.service.admin().list_acls()]
    assert found == ["group:kafka..team*", "group:team*"]
    matching = AclBindingFilter(
        ResourceType.GROUP, "team/a", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(matching).result() == [of("team")]
    assert [each.result() for each in admin.delete_acls([matching]).values()] == [[of("team")]]
    assert list(gateway.service.admin().list_acls()) == []
    assert _refusal(admin.create_acls([of("kaf")])[of("kaf")]) == "INVALID_REQUEST"


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
        "penstock.retention": "STRING",
        "penstock.validate.records": "BOOLEAN",
        "penstock.value.schema": "STRING",
        "retention.bytes": "LONG",
        "retention.ms": "LONG",
    }
    admin.close()
