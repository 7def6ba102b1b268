"""Values in a registry's format: typed by the newest schema, each writer's schema asked for once, and no secret lost.

Confluent's own Python client writes the values.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from moto import mock_aws

from penstock.errors import InvalidError
from penstock.schemas import AvroSerde, GlueRegistry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.https_target import HttpAnswer, HttpsEndpoints
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.registered_schemas import (
    UNKNOWN_IDS_MAX,
    open_registry,
    registered_schema,
    value_reader,
)
from penstock_spark.archive.typed_columns import SCHEMA_BYTES_MAX, value_columns
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.proto_messages import order_classes
from tests.support.schema_registry import AUTH, SchemaRegistry, running_registry
from tests.support.service import SteppedClock

LOCAL = replace(SOME_STORAGE, region="eu-west-1", endpoint_url="http://127.0.0.1:9", access_key="x", secret_key="x")
CONTEXT = SerializationContext("Web.orders", MessageField.VALUE)
OLD: list[Any] = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]
WIDER = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "n", "type": "int", "default": 5}]
NEWEST = [
    {"name": "id", "type": "long"},
    {"name": "label", "aliases": ["name"], "type": "string"},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
]


def avro(fields: list[Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found


@pytest.fixture
def client(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def archived(tmp_path: Path) -> ArchivedTopic:
    open_registry.cache_clear()
    return ArchivedTopic(folder=tmp_path, kind=TableKind.ICEBERG, registries=partial(open_registry, LOCAL))


def schema_at(archived: ArchivedTopic, url: str, rest: str = "", secret: str | None = None) -> tuple[str, str]:
    assert archived.registries is not None
    return "registry", registered_schema(archived.registries, url + rest, "Web.orders", secret)


def test_values_of_each_writer_are_resolved_to_the_newest_and_each_schema_is_asked_for_once(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    for number, fields in enumerate((OLD, WIDER)):
        serializer = AvroSerializer(client, avro(fields))
        values = [serializer({"id": number * 10 + each, "name": f"n{each}", "n": 1}, CONTEXT) for each in range(5)]
        archived.append_values(*values, partition=number)
    archived.append_values(AvroSerializer(client, avro(NEWEST))({"id": 2**40, "label": "x", "day": None}, CONTEXT))
    late = AvroSerializer(client, avro(OLD))({"id": 9, "name": "late"}, CONTEXT)
    registry.calls.clear()

    archived.archive(schema=schema_at(archived, registry.url))
    open_registry.cache_clear()  # as another process
    archived.append_values(late)
    archived.archive(schema=schema_at(archived, registry.url))

    rows = archived.table_rows()
    assert [(each["id"], each["label"], each["value_day"]) for each in rows] == [
        *((each, f"n{each}", None) for each in range(5)),
        (2**40, "x", None),
        (9, "late", None),
        *((10 + each, f"n{each}", None) for each in range(5)),
    ]
    assert {each["_raw_reason"] for each in rows} == {None}
    newest = "GET /subjects/Web.orders-value/versions/latest"
    assert sorted(registry.calls) == [*(f"GET /schemas/ids/{number}" for number in (1, 2, 3)), newest, newest]

    schema = schema_at(archived, registry.url)
    registry.outage = 503  # a rebuild finds all writers' schemas in the table's folder
    open_registry.cache_clear()
    archived.rebuild(schema)
    assert [each["id"] for each in archived.table_rows()] == [each["id"] for each in rows]


def test_schema_that_a_header_names_types_the_value_and_a_header_that_is_none_makes_it_raw(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    def written(fields: list[Any], document: dict[str, Any]) -> tuple[bytes, list[tuple[str, bytes]]]:
        headers: list[tuple[str, bytes]] = [("other", b"x")]
        context = SerializationContext("Web.orders", MessageField.VALUE, headers)
        value: Any = AvroSerializer(client, avro(fields), conf=by_header)(document, context)
        return value, headers

    by_header = {"schema.id.serializer": header_schema_id_serializer}
    old, of_old = written(OLD, {"id": 1, "name": "a"})
    newest, of_newest = written(NEWEST, {"id": 2, "label": "b", "day": None})
    archived.append_values(old, None, headers=of_old)
    archived.append_values(newest, headers=of_newest)
    archived.append_values(AvroSerializer(client, avro(OLD))({"id": 3, "name": "c"}, CONTEXT))
    archived.append_values(old, headers=[("__value_schema_id", b"\x01\x02")])

    schema = schema_at(archived, registry.url)
    archived.archive(schema=schema)

    rows = archived.table_rows()
    assert [(each["id"], each["label"]) for each in rows] == [
        (1, "a"),
        (None, None),
        (2, "b"),
        (3, "c"),
        (None, None),
    ]
    assert [each["_raw"] for each in rows] == [None, None, None, None, old]
    assert "the header b'\\x01\\x02' names no schema" in rows[4]["_raw_reason"]
    registry.outage = 503  # a rebuild finds the writers' schemas in the table's folder, by their GUIDs, too
    open_registry.cache_clear()
    archived.rebuild(schema)
    assert [each["id"] for each in archived.table_rows()] == [1, None, 2, 3, None]


def test_named_types_of_other_subjects_are_columns_and_read(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    by = {"type": "record", "name": "By", "namespace": "people", "fields": [{"name": "state", "type": "State"}]}
    state = {"type": "enum", "name": "State", "namespace": "people", "symbols": ["A", "B"]}
    client.register_schema("state", ConfluentSchema(json.dumps(state), "AVRO"))
    states = [SchemaReference("people.State", "state", 1)]
    client.register_schema("by", ConfluentSchema(json.dumps(by), "AVRO", states))
    fields = [{"name": "by", "type": "people.By"}, {"name": "last", "type": ["null", "people.By"], "default": None}]
    order = ConfluentSchema(avro(fields), "AVRO", [SchemaReference("people.By", "by", 1)])
    archived.append_values(AvroSerializer(client, order)({"by": {"state": "A"}, "last": {"state": "B"}}, CONTEXT))

    archived.archive(schema=schema_at(archived, registry.url))

    [row] = archived.table_rows()
    assert (row["by"], row["last"], row["_raw_reason"]) == ({"state": "A"}, {"state": "B"}, None)


def test_json_values_have_the_columns_of_the_schema_and_of_those_that_it_refers_to(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    by = {"$defs": {"Age": {"type": "integer"}}, "type": "object", "properties": {"age": {"$ref": "#/$defs/Age"}}}
    client.register_schema("by", ConfluentSchema(json.dumps(by), "JSON"))
    document = {
        "title": "Order",
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "by": {"$ref": "by.json"}, "old": {"$ref": "by.json#/$defs/Age"}},
    }
    order = ConfluentSchema(json.dumps(document), "JSON", [SchemaReference("by.json", "by", 1)])
    given: list[dict[str, Any]] = [{"id": 1, "by": {"age": 2}, "old": 3}, {"by": {}}]
    serializer = JSONSerializer(order, client, conf={"validate": False})
    values = [serializer(each, CONTEXT) for each in given]
    archived.append_values(*values, b'{"id": 1}', b"\x00\x00")

    archived.archive(schema=schema_at(archived, registry.url))

    rows = archived.table_rows()
    assert (rows[0]["id"], rows[0]["by"], rows[0]["old"]) == (1, {"age": 2}, 3)
    assert [each["_raw"] is None for each in rows] == [True, False, False, False]
    assert "id: null or missing" in rows[1]["_raw_reason"]
    assert "do not begin with a byte 0" in rows[2]["_raw_reason"]


@pytest.mark.parametrize("name", ["shop.Order", "shop.Refund", "shop.Order.Address"])
def test_messages_of_a_registry_are_typed_and_those_of_another_kind_are_raw(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient, name: str
) -> None:
    classes = order_classes()
    made = {
        "shop.Order": classes["shop.Order"](id=7, by=classes["shop.Customer"](name="ada")),
        "shop.Refund": classes["shop.Refund"](reason="late"),
        "shop.Order.Address": classes["shop.Order.Address"](text="home"),
    }
    expected = {"shop.Order": ("id", 7), "shop.Refund": ("reason", "late"), "shop.Order.Address": ("text", "home")}
    values = {
        each: ProtobufSerializer(classes[each], client, {"use.deprecated.format": False})(made[each], CONTEXT)
        for each in made
    }
    archived.append_values(*values.values())

    archived.archive(schema=schema_at(archived, registry.url, f"##{name}"))

    column, cell = expected[name]
    for row, each in zip(archived.table_rows(), values, strict=True):
        assert (row[column], row["_raw"]) == ((cell, None) if each == name else (None, values[each]))
        assert each == name or f"another message than {name} of its file" in row["_raw_reason"]


def test_first_message_of_the_file_is_the_one_of_values_unless_another_is_named(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    refund = order_classes()["shop.Refund"]
    value = ProtobufSerializer(refund, client, {"use.deprecated.format": False})(refund(reason="late"), CONTEXT)
    long_path = value[:5] + b"\x02\x00" + value[6:]
    archived.append_values(value, long_path)
    archived.archive(schema=schema_at(archived, registry.url, "#Web.orders-value"))
    assert [each["reason"] for each in archived.table_rows()] == ["late", "late"]


def test_ids_that_the_registry_does_not_know_are_raw_and_few_of_them_are_asked_for(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    good = AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT)
    strangers = [b"\x00" + number.to_bytes(4, "big") + b"x" for number in range(9, 9 + 2 * UNKNOWN_IDS_MAX)]
    archived.append_values(good, *strangers, *strangers)

    result = archived.archive(schema=schema_at(archived, registry.url))

    rows = archived.table_rows()
    assert (rows[0]["id"], result.unfit_records) == (1, 4 * UNKNOWN_IDS_MAX)
    assert all("the registry has no schema" in each["_raw_reason"] for each in rows[1:])
    assert sum("/schemas/ids/" in each for each in registry.calls) == 1 + UNKNOWN_IDS_MAX


def test_known_schemas_are_read_behind_many_unknown_ids(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    good = AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT)
    archived.append_values(good)
    archived.archive(schema=schema_at(archived, registry.url))
    strangers = [b"\x00" + number.to_bytes(4, "big") + b"x" for number in range(9, 9 + UNKNOWN_IDS_MAX)]
    archived.append_values(*strangers, good)
    archived.archive(schema=schema_at(archived, registry.url))
    assert archived.table_rows()[-1]["id"] == 1


def test_schema_that_cannot_be_read_by_is_raw_and_stops_nothing_and_is_asked_for_once(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient, monkeypatch: Any
) -> None:
    """Registries take defaults of another type, and each producer may register a schema."""
    good = AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT)
    wrong = registry.register("other", {"schema": avro([{"name": "id", "type": "int", "default": "x"}])})
    other = registry.register("other", {"schema": "{}", "schemaType": "JSON"})
    strangers = [b"\x00" + number.to_bytes(4, "big") + b"\x02" for number in (wrong, other)]
    archived.append_values(*strangers * 5, good)
    read: list[str] = []
    get = type(archived.lake).get
    monkeypatch.setattr(type(archived.lake), "get", lambda lake, path: read.append(path) or get(lake, path))  # type: ignore[func-returns-value]

    assert archived.archive(schema=schema_at(archived, registry.url)).unfit_records == 10

    rows = archived.table_rows()
    assert rows[-1]["id"] == 1
    assert "the Avro schema is not valid" in rows[0]["_raw_reason"]
    assert "is of kind JSON, and the table's is of Avro" in rows[1]["_raw_reason"]
    assert sum("/schemas/" in path for path in read) == 3


def test_secret_that_a_task_cannot_read_types_no_value_as_raw(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    archived.append_values(AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT))
    schema = schema_at(archived, registry.url)
    with mock_aws():  # which has no such secret
        archived.registries = partial(open_registry, IN_MOTO)
        document = {**json.loads(schema[1]), "secret": "nowhere"}
        with pytest.raises(PenstockError, match="secret 'nowhere' cannot be read"):
            archived.archive(schema=(schema[0], json.dumps(document)))


@pytest.mark.parametrize(("outage", "code"), [(503, ErrorCode.STORAGE_UNAVAILABLE), (401, ErrorCode.ACCESS_DENIED)])
def test_registry_that_does_not_answer_types_no_value_as_raw_and_the_next_run_goes_on(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient, outage: int, code: ErrorCode
) -> None:
    archived.append_values(AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT))
    schema = schema_at(archived, registry.url)
    registry.outage = outage
    with pytest.raises(PenstockError) as caught:
        archived.archive(schema=schema)
    assert caught.value.code is code
    registry.outage = 0
    open_registry.cache_clear()
    assert archived.archive(schema=schema).records == 1
    assert [(each["id"], each["_raw"]) for each in archived.table_rows()] == [(1, None)]


@pytest.mark.parametrize(("call_ms", "calls_made"), [(9_000, 8), (500, 400)])
def test_slow_registry_gets_a_minute_of_a_process_and_then_no_call(
    monkeypatch: pytest.MonkeyPatch, call_ms: int, calls_made: int
) -> None:
    clock = SteppedClock()
    calls: list[str] = []

    def answers(_: object, url: str, *rest: object) -> HttpAnswer:
        calls.append(url)
        clock.sleep_ms(call_ms)
        return HttpAnswer(status=200, body=b'{"schema": "\\"long\\"", "id": 1, "version": 1}')

    monkeypatch.setattr("penstock_spark.archive.registered_schemas.SystemClock", lambda: clock)
    monkeypatch.setattr(HttpsEndpoints, "get", answers)
    opened = open_registry(SOME_STORAGE, f"https://takes-{call_ms}.example.com", None)
    for number in range(calls_made):
        assert opened.newest(f"orders-{number}").text == '"long"'
    if call_ms > 1_000:
        with pytest.raises(PenstockError, match="the next run asks it again") as caught:
            opened.newest("one more")
        assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert len(calls) == calls_made


def test_schema_of_another_kind_than_the_tables_is_raw(
    archived: ArchivedTopic, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    archived.append_values(AvroSerializer(client, avro(OLD))({"id": 1, "name": "a"}, CONTEXT))
    other = registry.register("other", {"schema": "{}", "schemaType": "JSON"})
    archived.append_values(b"\x00" + other.to_bytes(4, "big") + b"{}")
    archived.archive(schema=schema_at(archived, registry.url))
    assert "is of kind JSON, and the table's is of Avro" in archived.table_rows()[1]["_raw_reason"]


# Where the job may go, and what it tells whom.


@pytest.fixture
def secret() -> Iterator[Callable[[object], str]]:
    """Puts a secret into Secrets Manager and returns its name."""
    open_registry.cache_clear()
    with mock_aws():
        secrets = boto3.client("secretsmanager", region_name="eu-west-1")

        def put(content: object) -> str:
            text = content if isinstance(content, str) else json.dumps(content)
            secrets.create_secret(Name="registry", SecretString=text)
            return "registry"

        yield put


IN_MOTO = replace(LOCAL, endpoint_url=None)


def with_secret(registry: SchemaRegistry, name: str) -> str:
    """The registry's answer to the job, whose Secrets Manager is moto's and whose registry is on this machine."""
    opened: Any = open_registry(IN_MOTO, registry.url, name)
    opened._endpoints = open_registry(LOCAL, registry.url, None)._endpoints  # type: ignore[attr-defined]
    return registered_schema(lambda *_: opened, registry.url, "orders", name)


def test_secret_opens_the_registry_that_it_names_and_is_in_no_schema_and_no_error(
    registry: SchemaRegistry, secret: Callable[[object], str]
) -> None:
    registry.needs_auth = True
    registry.register("orders-value", {"schema": avro(OLD)})
    name = secret({"url": f"{registry.url}/", "username": AUTH[0], "password": AUTH[1]})
    text = with_secret(registry, name)
    assert json.loads(text)["secret"] == "registry"
    assert AUTH[1] not in text
    assert [each.name for each in value_columns("registry", text).fields] == ["id", "name"]


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        ({"url": "https://other.example", "username": AUTH[0], "password": AUTH[1]}, ErrorCode.ACCESS_DENIED, "401"),
        ({"url": "{url}", "token": AUTH[1]}, ErrorCode.ACCESS_DENIED, "401"),
        ({"url": "{url}", "username": AUTH[0]}, ErrorCode.INVALID_CONFIG, "give JSON with url"),
        ({"username": AUTH[0], "password": AUTH[1]}, ErrorCode.INVALID_CONFIG, "give JSON with url"),
        (f"no JSON {AUTH[1]}", ErrorCode.INVALID_CONFIG, "give JSON with url"),
        ([], ErrorCode.INVALID_CONFIG, "give JSON with url"),
    ],
)
def test_secret_that_does_not_open_the_registry_is_not_told(
    registry: SchemaRegistry, secret: Callable[[object], str], content: object, code: ErrorCode, why: str
) -> None:
    registry.needs_auth = True
    text = content if isinstance(content, str) else json.dumps(content).replace("{url}", registry.url)
    name = secret(text)
    with pytest.raises(PenstockError, match=why) as caught:
        with_secret(registry, name)
    assert caught.value.code is code
    told: BaseException | None = caught.value
    while told is not None:
        assert AUTH[1] not in str(told)
        told = told.__cause__


def test_secret_that_is_not_there_is_named(registry: SchemaRegistry, secret: Callable[[object], str]) -> None:
    del secret
    with pytest.raises(PenstockError, match=r"secret 'nowhere' cannot be read.*registry_secret"):
        with_secret(registry, "nowhere")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "https://127.0.0.1", "https://169.254.169.254", "https://10.1.2.3"]
)
def test_registry_at_a_private_address_is_refused_in_aws(url: str) -> None:
    with pytest.raises(PenstockError, match="give a host with public addresses only") as caught:
        registered_schema(partial(open_registry, IN_MOTO), url, "orders", None)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", ["registry", "ftp://x", "https://user:word@x", ""])
def test_name_that_is_no_registrys_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="give http://host or https://host"):
        open_registry(SOME_STORAGE, name, None)


def test_protobuf_of_a_registry_that_tells_only_text_is_refused_with_the_way_out(
    archived: ArchivedTopic, registry: SchemaRegistry
) -> None:
    registry.register("Web.orders-value", {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    with pytest.raises(PenstockError, match=r"format=serialized.*protobuf:order\.desc"):
        schema_at(archived, registry.url)


def test_description_is_asked_for_by_the_schemas_id_if_its_version_tells_only_text(
    archived: ArchivedTopic, registry: SchemaRegistry
) -> None:
    """As Karapace answers, for the schema and for what it imports."""
    order = order_classes()["shop.Order"].DESCRIPTOR.file
    described = {1: order.dependencies[0].serialized_pb, 2: order.serialized_pb}
    registry.register("customer", {"schema": 'syntax = "proto3"; // customer', "schemaType": "PROTOBUF"})
    imports = [{"name": "shop/customer.proto", "subject": "customer", "version": 1}]
    text = {"schema": 'syntax = "proto3"; // order', "schemaType": "PROTOBUF", "references": imports}
    registry.register("Web.orders-value", text)
    original = registry.answer

    def answer(method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, found = original(method, path, body)
        if not path.startswith("/schemas/ids/"):
            return status, found
        number = int(path.rpartition("/")[2])
        return status, {**found, "schema": base64.b64encode(described[number]).decode()}

    registry.answer = answer  # type: ignore[method-assign]

    columns = value_columns(*schema_at(archived, registry.url, "##shop.Order"))

    assert [each.name for each in columns.fields] == ["id", "by"]


def test_schema_that_is_large_with_those_that_it_refers_to_is_refused(
    archived: ArchivedTopic, registry: SchemaRegistry
) -> None:
    large = json.dumps({"$comment": "x" * (SCHEMA_BYTES_MAX // 2), "type": "object"})
    registry.register("by", {"schema": large, "schemaType": "JSON"})
    references = [{"name": f"{each}.json", "subject": "by", "version": 1} for each in range(2)]
    registry.register("Web.orders-value", {"schema": "{}", "schemaType": "JSON", "references": references})
    with pytest.raises(PenstockError, match="with all that it refers to: 1,000,000 are the most"):
        schema_at(archived, registry.url)


def test_message_is_refused_for_a_schema_that_has_none(archived: ArchivedTopic, registry: SchemaRegistry) -> None:
    registry.register("Web.orders-value", {"schema": avro(OLD)})
    with pytest.raises(PenstockError, match="only Protobuf has messages, and the schema is of Avro"):
        schema_at(archived, registry.url, "##shop.Order")


def test_values_of_glues_registry_are_typed_by_its_newest_version(archived: ArchivedTopic, monkeypatch: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        glue = boto3.client("glue", region_name="eu-west-1")
        glue.create_registry(RegistryName="shop")
        writers = [
            AvroSerde(avro(fields), registry=GlueRegistry("shop", client=glue))
            for fields in (OLD[:1], WIDER[:2], WIDER)
        ]
        given = [{"id": 1}, {"id": 2, "name": "b"}, {"id": 3, "name": "c", "n": 4}]
        nullable = [{"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 5}]
        values = [each.serialize("Web.orders", "value", value) for each, value in zip(writers, given, strict=True)]
        AvroSerde(avro(nullable), registry=GlueRegistry("shop", client=glue)).serialize(
            "Web.orders", "value", {"id": 0}
        )
        archived.append_values(*values, b"\x03\x00" + bytes(16) + b"x")
        archived.registries = lambda name, secret: GlueRegistry(name.removeprefix("glue:"), client=glue)
        archived.archive(schema=schema_at(archived, "glue:shop"))
    rows = archived.table_rows()
    assert [(each["id"], each["n"]) for each in rows] == [(1, 5), (2, 5), (3, 4), (None, None)]
    assert "the registry has no schema 00000000-0000" in rows[3]["_raw_reason"]


def test_glues_registry_is_opened_by_its_name() -> None:
    found = open_registry(replace(SOME_STORAGE, region="eu-west-1"), "glue:shop", None)
    assert isinstance(found, GlueRegistry)
    assert found.name == "glue:shop"


def test_bytes_behind_an_avro_value_are_refused(archived: ArchivedTopic, registry: SchemaRegistry) -> None:
    assert archived.registries is not None
    registry.register("orders-value", {"schema": avro([{"name": "id", "type": "int"}])})
    text = registered_schema(archived.registries, registry.url, "orders", None)
    read = value_reader(text, archived.lake, "orders", archived.registries)
    assert read(b"\x00\x00\x00\x00\x01\x0e") == {"id": 7}
    with pytest.raises(ValueError, match="1 bytes follow"):
        read(b"\x00\x00\x00\x00\x01\x0e\x00")
