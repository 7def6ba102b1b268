"""A schema registry of another project, started against the gateway: it keeps what it is told through a restart.

No package registry that our tests use has one, so you name one that you have, by the command that starts it:

    PENSTOCK_TEST_REGISTRY='python -m karapace' python -m pytest tests/kafka/test_registry_program.py

The command gets its addresses as Karapace reads them, by the environment; `{kafka}` and `{port}` in it are replaced,
for programs that take options.
"""

import json
import os
import shlex
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.endpoint.listening import listen
from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde, ProtobufSerde
from penstock.testing import MemoryPenstock
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.registered_schemas import open_registry, registered_schema, value_reader
from tests.glue_jobs.archive.test_registered_schemas import LOCAL, NEWEST, OLD, avro
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.kafka.running_gateway import running_gateway
from tests.support.child_process import child_process
from tests.support.deadlines import until
from tests.support.proto_messages import order_classes

COMMAND = os.environ.get("PENSTOCK_TEST_REGISTRY", "")
DEADLINE_S = 300.0
TOPIC = "Web.orders"
ITEM = {"title": "Item", "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}

pytestmark = pytest.mark.skipif(not COMMAND, reason="PENSTOCK_TEST_REGISTRY names no command that starts a registry")


@contextmanager
def registry(kafka: str, port: int, folder: Path) -> Iterator[str]:
    """Run the program until the block ends, and yield its URL once it answers and may write."""
    told = {"bootstrap_uri": kafka, "host": "127.0.0.1", "port": str(port), "karapace_registry": "true"}
    environment = os.environ | {f"karapace_{name}": value for name, value in told.items()}
    url = f"http://127.0.0.1:{port}"

    def may_write() -> bool:
        body = json.dumps({"compatibility": "BACKWARD"}).encode()
        asked = urllib.request.Request(
            f"{url}/config", body, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method="PUT"
        )
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    command = [each.format(kafka=kafka, port=port) for each in shlex.split(COMMAND)]
    with (
        (folder / "registry.log").open("ab") as log,
        child_process(command, deadline_s=DEADLINE_S, env=environment, stdout=log, stderr=log),
    ):
        until(may_write, shown=lambda: (folder / "registry.log").read_text()[-5_000:])
        yield url


def free_port() -> int:
    with listen(0) as found:
        return int(found.getsockname()[1])


def test_program_keeps_schemas_of_each_format_through_a_restart_and_values_of_its_clients_are_typed(
    tmp_path: Path,
) -> None:
    port = free_port()
    customer: Any = order_classes()["shop.Customer"]
    registries = partial(open_registry, LOCAL)
    with MemoryPenstock() as service:
        archived = ArchivedTopic(
            folder=tmp_path,
            kind=TableKind.ICEBERG,
            instance=service._instance,
            registries=registries,
        )
        for each in ("items", "protos"):
            service.create_topic(each)
        with running_gateway(service) as gateway:

            def sent(topic: str, value: bytes | None) -> None:
                producer = Producer({"bootstrap.servers": gateway.address})
                producer.produce(topic, value, partition=0)
                assert producer.flush(30) == 0

            def avro_value(fields: list[Any], document: dict[str, Any]) -> Any:
                return AvroSerializer(client, avro(fields))(document, SerializationContext(TOPIC, MessageField.VALUE))

            with registry(gateway.address, port, tmp_path) as url:
                client = SchemaRegistryClient({"url": url})
                sent(TOPIC, avro_value(OLD, {"id": 1, "name": "old"}))
                item = JSONSerializer(json.dumps(ITEM), client)
                sent("items", item({"id": 7}, SerializationContext("items", MessageField.VALUE)))
                proto = ProtobufSerializer(customer, client, {"use.deprecated.format": False})
                sent("protos", proto(customer(name="ada"), SerializationContext("protos", MessageField.VALUE)))
                with pytest.raises(SchemaRegistryError) as refused:
                    client.register_schema(
                        f"{TOPIC}-value", ConfluentSchema(avro([{"name": "x", "type": "int"}]), "AVRO")
                    )
                assert refused.value.http_status_code == 409

            with registry(gateway.address, port, tmp_path) as url:
                client = SchemaRegistryClient({"url": url})
                assert {f"{TOPIC}-value", "items-value", "protos-value"} <= {*client.get_subjects()}
                sent(TOPIC, avro_value(NEWEST, {"id": 2**40, "label": "new", "day": None}))
                assert client.get_versions(f"{TOPIC}-value") == [1, 2]

                ours = ConfluentRegistry(url)
                for topic, serde, expected in (
                    (TOPIC, AvroSerde(avro(NEWEST), registry=ours), {"id": 1, "label": "old", "day": None}),
                    ("items", JsonSerde(registry=ours), {"id": 7}),
                    ("protos", ProtobufSerde(customer, registry=ours), customer(name="ada")),
                ):
                    with service.consumer(topic, auto_offset_reset="earliest", value_deserializer=serde) as consumer:
                        assert next(iter(consumer)).value == expected
                with service.producer(value_serializer=AvroSerde(avro(NEWEST), registry=ours)) as producer:
                    producer.send(TOPIC, {"id": 3, "label": "ours", "day": None}).result()

                open_registry.cache_clear()
                archived.archive(schema=("registry", registered_schema(registries, url, TOPIC, None)))
                rows = [(each["id"], each["label"], each["_raw_reason"]) for each in archived.table_rows()]
                assert sorted(rows) == [(1, "old", None), (3, "ours", None), (2**40, "new", None)]
                for topic, expected in (("items", {"id": 7}), ("protos", {"name": "ada"})):
                    text = registered_schema(registries, url, topic, None)
                    with service.consumer(topic, auto_offset_reset="earliest") as consumer:
                        value = next(iter(consumer)).value
                    assert value is not None
                    assert value_reader(text, None, topic, registries)(value) == expected
