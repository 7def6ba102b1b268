"""Confluent's wire format and HTTP API: ids, refusals, references. Its own client reads and writes the same."""

import json
import pickle
from typing import Any

import pytest

from penstock.errors import AccessDeniedError, CorruptError, InvalidError, LookUpFirst, UnavailableError
from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde, ProtobufSerde, Schema
from penstock.schemas.registry import read_varint, varint
from penstock.schemas.serialization import Deserializers
from penstock.testing import MemoryPenstock
from tests.support.proto_messages import order_classes
from tests.support.schema_registry import AUTH, SchemaRegistry

AVRO = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def test_value_begins_with_magic_and_the_registered_id(registry: SchemaRegistry) -> None:
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url))
    assert serde.serialize("orders", "value", {"id": 7}) == b"\x00\x00\x00\x00\x01\x0e"
    assert registry.subjects == {"orders-value": [1]}


def test_each_schema_is_asked_for_once_however_many_records_there_are(registry: SchemaRegistry) -> None:
    writer, reader = (AvroSerde(AVRO, registry=ConfluentRegistry(registry.url)) for _ in range(2))
    for number in range(5):
        data = writer.serialize("orders", "value", {"id": number})
        assert reader.deserialize("orders", "value", data) == {"id": number}
    assert registry.calls == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_serde_that_may_not_wait_says_what_to_look_up_first(registry: SchemaRegistry) -> None:
    serde = JsonSerde(JSON, registry=ConfluentRegistry(registry.url))
    with pytest.raises(LookUpFirst) as caught:
        serde.serialize_now("orders", "value", {"id": 1})
    assert registry.calls == []
    caught.value.look_up()
    assert serde.serialize_now("orders", "value", {"id": 1}) == b'\x00\x00\x00\x00\x01{"id":1}'


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        ("topic", "orders-value"),
        ("record", "shop.Order"),
        ("topic_record", "orders-shop.Order"),
        (lambda topic, field, name: f"{topic}.{field}.{name}", "orders.value.shop.Order"),
    ],
)
def test_subject_follows_the_strategy(registry: SchemaRegistry, subjects: Any, expected: str) -> None:
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url), subjects=subjects)
    serde.serialize("orders", "value", {"id": 1})
    assert list(registry.subjects) == [expected]


def test_keys_have_a_subject_of_their_own(registry: SchemaRegistry) -> None:
    AvroSerde('"string"', registry=ConfluentRegistry(registry.url)).serialize("orders", "key", "ada")
    assert list(registry.subjects) == ["orders-key"]


def test_json_schema_without_a_title_has_no_record_name(registry: SchemaRegistry) -> None:
    serde = JsonSerde({"type": "object"}, registry=ConfluentRegistry(registry.url), subjects="record")
    with pytest.raises(InvalidError, match="has it as its title"):
        serde.serialize("orders", "value", {})


def test_writer_that_may_not_register_finds_the_schema_or_says_how(registry: SchemaRegistry) -> None:
    now_ms = [0]
    shared = ConfluentRegistry(registry.url, now_ms=lambda: now_ms[0])
    serde = AvroSerde(AVRO, registry=shared, registers=False)
    for _ in range(2):
        with pytest.raises(InvalidError, match=r"orders-value.*40401.*registers=True"):
            serde.serialize("orders", "value", {"id": 1})
    assert len(registry.calls) == 1
    registry.register("orders-value", {"schema": json.dumps(AVRO)})
    now_ms[0] += 10_000
    assert serde.serialize("orders", "value", {"id": 1}).startswith(b"\x00\x00\x00\x00\x01")


def test_incompatible_schema_is_refused_with_the_registrys_words(registry: SchemaRegistry) -> None:
    registry.refused = {"orders-value"}
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url))
    with pytest.raises(InvalidError, match=r"incompatible with an earlier schema.*compatibility of the subject"):
        serde.serialize("orders", "value", {"id": 1})


def test_unknown_id_is_asked_for_once_in_ten_seconds(registry: SchemaRegistry) -> None:
    now_ms = [0]
    serde = AvroSerde(registry=ConfluentRegistry(registry.url, now_ms=lambda: now_ms[0]))
    for calls in (1, 1, 2):
        with pytest.raises(InvalidError, match=r"schema 9.*registry of the producer"):
            serde.deserialize("orders", "value", b"\x00\x00\x00\x00\x09\x0e")
        assert len(registry.calls) == calls
        now_ms[0] += 5_000


def test_registry_that_is_down_is_asked_again_after_a_second(registry: SchemaRegistry) -> None:
    now_ms = [0]
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url, now_ms=lambda: now_ms[0]))
    registry.outage = 503
    for calls in (1, 1):
        with pytest.raises(UnavailableError, match="failed for subject 'orders-value'"):
            serde.serialize("orders", "value", {"id": 1})
        assert len(registry.calls) == calls
    registry.outage, now_ms[0] = 0, 1_000
    assert serde.serialize("orders", "value", {"id": 1})


def test_registry_without_an_answer_is_unavailable() -> None:
    serde = AvroSerde(AVRO, registry=ConfluentRegistry("http://127.0.0.1:9"))
    with pytest.raises(UnavailableError, match="did not answer"):
        serde.serialize("orders", "value", {"id": 1})


def test_password_is_sent_and_its_lack_is_told(registry: SchemaRegistry) -> None:
    registry.needs_auth = True
    with pytest.raises(AccessDeniedError, match="give auth= or token="):
        AvroSerde(AVRO, registry=ConfluentRegistry(registry.url)).serialize("orders", "value", {"id": 1})
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url, auth=AUTH))
    assert serde.serialize("orders", "value", {"id": 1})
    assert AUTH[1] not in repr(vars(serde))


@pytest.mark.parametrize("url", ["", "registry", "ftp://registry", "https://user:word@registry", "https://", 5, None])
def test_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(InvalidError, match="give http://host or https://host"):
        ConfluentRegistry(url)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x01", b'{"id": 1}', b"\x03" + bytes(20)])
def test_bytes_without_the_format_are_corrupt(registry: SchemaRegistry, data: bytes) -> None:
    with pytest.raises(CorruptError, match="do not begin with a byte 0"):
        AvroSerde(registry=ConfluentRegistry(registry.url)).deserialize("orders", "value", data)


def test_answer_that_is_no_registrys_says_so(registry: SchemaRegistry) -> None:
    registry.outage = 200  # a page that answers everything, as a portal does
    with pytest.raises(InvalidError, match="is its URL right"):
        AvroSerde(AVRO, registry=ConfluentRegistry(registry.url)).serialize("orders", "value", {"id": 1})


def test_registry_travels_to_another_process_without_its_connections(registry: SchemaRegistry) -> None:
    serde = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url, auth=AUTH))
    data = serde.serialize("orders", "value", {"id": 1})
    assert pickle.loads(pickle.dumps(serde)).serialize("orders", "value", {"id": 1}) == data


def test_references_are_read_with_the_schema(registry: SchemaRegistry) -> None:
    registry.register("customer", {"schema": json.dumps({"type": "record", "name": "Customer", "fields": []})})
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "Customer"}]}
    reference = {"name": "Customer", "subject": "customer", "version": 1}
    number = registry.register("orders-value", {"schema": json.dumps(order), "references": [reference]})
    assert ConfluentRegistry(registry.url)._find_schema(number).references[0].name == "Customer"
    read = AvroSerde(registry=ConfluentRegistry(registry.url)).deserialize("orders", "value", b"\0\0\0\0\2")
    assert read == {"by": {}}


def test_json_references_lead_to_the_registry_alone(registry: SchemaRegistry) -> None:
    registry.register("customer", {"schema": '{"type": "string"}', "schemaType": "JSON"})
    order = {"type": "object", "properties": {"by": {"$ref": "customer.json"}, "at": {"$ref": "file:///etc/passwd"}}}
    reference = {"name": "customer.json", "subject": "customer", "version": 1}
    body = {"schema": json.dumps(order), "schemaType": "JSON", "references": [reference]}
    registry.register("orders-value", body)
    reader = JsonSerde(registry=ConfluentRegistry(registry.url))
    with pytest.raises(InvalidError, match="etc/passwd"):
        reader.deserialize("orders", "value", b'\0\0\0\0\2{"by": 1}')
    del order["properties"]["at"]  # type: ignore[attr-defined]
    registry.register("orders-value", {**body, "schema": json.dumps(order)})
    with pytest.raises(CorruptError, match='1 is not of type "string" at /by'):
        reader.deserialize("orders", "value", b'\0\0\0\0\3{"by": 1}')


def test_references_that_lead_in_a_circle_end(registry: SchemaRegistry) -> None:
    reference = {"name": "a", "subject": "a", "version": 1}
    registry.register("a", {"schema": '{"type": "object"}', "schemaType": "JSON", "references": [reference]})
    with pytest.raises(InvalidError, match="more than 100 references"):
        JsonSerde(registry=ConfluentRegistry(registry.url)).deserialize("orders", "value", b"\0\0\0\0\1{}")


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31])
def test_varint_round_trip(number: int) -> None:
    assert read_varint(varint(number) + b"rest", 0) == (number, len(varint(number)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 6])
def test_varint_without_an_end_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        read_varint(data, 0)


# Confluent's Python client, as the foreign writer and reader.


def test_confluents_client_reads_what_we_write_and_we_read_what_it_writes(registry: SchemaRegistry) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("orders", MessageField.VALUE)
    avro = AvroSerde(AVRO, registry=ConfluentRegistry(registry.url))
    assert AvroDeserializer(client)(avro.serialize("orders", "value", {"id": 7}), context) == {"id": 7}
    theirs = AvroSerializer(client, json.dumps(AVRO))({"id": 8}, context)
    assert avro.deserialize("orders", "value", theirs) == {"id": 8}

    plain = JsonSerde(JSON, registry=ConfluentRegistry(registry.url))
    assert JSONDeserializer(json.dumps(JSON))(plain.serialize("orders", "value", {"id": 7}), context) == {"id": 7}
    theirs = JSONSerializer(json.dumps(JSON), client)({"id": 8}, context)
    assert plain.deserialize("orders", "value", theirs) == {"id": 8}


@pytest.mark.parametrize("name", ["shop.Refund", "shop.Order", "shop.Order.Address", "shop.Customer"])
def test_confluents_client_reads_our_messages_and_writes_the_same_bytes(registry: SchemaRegistry, name: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    kind = order_classes()[name]
    message = kind(**{kind.DESCRIPTOR.fields[0].name: 5 if name == "shop.Order" else "x"})
    serde = ProtobufSerde(kind, registry=ConfluentRegistry(registry.url))
    ours = serde.serialize("orders", "value", message)
    context = SerializationContext("orders", MessageField.VALUE)
    deserialize = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    assert deserialize(ours, context) == message
    client = SchemaRegistryClient({"url": registry.url})
    theirs = ProtobufSerializer(kind, client, {"use.deprecated.format": False})(message, context)
    assert theirs == ours
    assert serde.deserialize("orders", "value", theirs) == message


def test_schema_of_protobuf_names_its_imports(registry: SchemaRegistry) -> None:
    order = order_classes()["shop.Order"]
    ProtobufSerde(order, registry=ConfluentRegistry(registry.url)).serialize("orders", "value", order(id=1))
    assert set(registry.subjects) == {"shop/customer.proto", "orders-value"}
    assert registry.schemas[2]["references"] == [
        {"name": "shop/customer.proto", "subject": "shop/customer.proto", "version": 1}
    ]


def test_schema_is_a_value_that_can_be_a_key() -> None:
    assert {Schema("AVRO", '"string"'): 1}[Schema("AVRO", '"string"')] == 1


# Schemas that headers of a record name.


def from_confluents_client(registry: SchemaRegistry, topic: str = "orders", field: str = "value") -> Any:
    """A function that serializes by Confluent's client. It returns the bytes and the headers."""
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    by_header = {"schema.id.serializer": header_schema_id_serializer}

    def serialize(given: Any, schema: Any = AVRO) -> tuple[bytes, list[tuple[str, bytes]]]:
        headers: list[tuple[str, bytes]] = [("other", b"\x01")]
        context = SerializationContext(topic, field, headers)
        if isinstance(given, dict):
            made: Any = AvroSerializer(client, json.dumps(schema), conf=by_header)(given, context)
        else:
            conf = {"use.deprecated.format": False, **by_header}
            made = ProtobufSerializer(type(given), client, conf)(given, context)
        return made, headers

    return serialize


def test_schema_that_a_header_names_is_read_by_every_client(registry: SchemaRegistry) -> None:
    ours = ConfluentRegistry(registry.url)
    address = order_classes()["shop.Order.Address"]
    value, headers = from_confluents_client(registry)({"id": 7})
    key, of_key = from_confluents_client(registry, field="key")({"id": 5})
    message, of_message = from_confluents_client(registry, "places")(address(text="x"))
    prefixed = AvroSerde(AVRO, registry=ours).serialize("orders", "value", {"id": 8})
    avro, protobuf = AvroSerde(registry=ours), ProtobufSerde(address, registry=ours)
    with MemoryPenstock() as service:
        for name in ("orders", "places"):
            service.create_topic(name)
        service.create_share_group("workers", ["orders"])
        with service.producer() as producer:
            producer.send("orders", value, key=key, headers=[*headers, *of_key])
            producer.send("orders", prefixed)
            producer.send("places", message, headers=of_message)
            producer.flush()
        read = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 1_000}

        with service.consumer("orders", value_deserializer=avro, key_deserializer=avro, **read) as consumer:
            found = [(each.key, each.value, each.headers[:1]) for each in consumer]
        with service.consumer("places", value_deserializer=protobuf, **read) as consumer:
            places = [each.value for each in consumer]
        with service.share_consumer("orders", group_id="workers", value_deserializer=avro) as sharing:
            shared = [each.value for each in sharing.poll(timeout_ms=5_000)]

    assert found == [({"id": 5}, {"id": 7}, (("other", b"\x01"),)), (None, {"id": 8}, ())]
    assert places == [address(text="x")]
    assert shared == [{"id": 7}, {"id": 8}]


@pytest.mark.parametrize(
    "header", [b"", b"\x01", b"\x02" + bytes(16), b"\x01" + bytes(15), b"\x01" + bytes(16) + b"\x02\x02\x02"]
)
def test_header_that_names_no_schema_is_corrupt(registry: SchemaRegistry, header: bytes) -> None:
    read = Deserializers(AvroSerde(registry=ConfluentRegistry(registry.url)), None)
    with pytest.raises(CorruptError, match="names no schema: "):
        read.deserialize_waiting("orders", b"\x0e", None, (("__value_schema_id", header),))


def test_registry_that_knows_no_guids_says_so_and_no_record_is_bad(registry: SchemaRegistry) -> None:
    value, headers = from_confluents_client(registry)({"id": 7})
    registry.schemas.clear()  # it answers as one that does not know the path
    read = Deserializers(AvroSerde(registry=ConfluentRegistry(registry.url)), None)
    with pytest.raises(InvalidError, match="by its GUID: some registries, Karapace's, know no GUIDs"):
        read.deserialize_waiting("orders", value, None, headers)
