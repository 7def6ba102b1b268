"""AWS Glue's wire format and registry, on moto."""

import zlib
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock.errors import AccessDeniedError, CorruptError, InvalidError, UnavailableError
from penstock.schemas import AvroSerde, GlueRegistry, JsonSerde, ProtobufSerde
from tests.support.aws_errors import client_error
from tests.support.proto_messages import order_classes

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {"type": "record", "name": "Order", "fields": [*AVRO["fields"], {"name": "y", "type": "int", "default": 0}]}
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws():
        client = boto3.client("glue", region_name="eu-west-1")
        client.create_registry(RegistryName="shop")
        yield client


def test_value_begins_with_the_header_and_the_version_of_a_schema_named_as_the_topic(glue: Any) -> None:
    data = AvroSerde(AVRO, registry=GlueRegistry("shop", client=glue)).serialize("orders", "value", {"id": 7})
    version = glue.get_schema_version(
        SchemaId={"RegistryName": "shop", "SchemaName": "orders"}, SchemaVersionNumber={"LatestVersion": True}
    )
    assert (data[:2], data[2:18].hex(), data[18:]) == (
        b"\x03\x00",
        version["SchemaVersionId"].replace("-", ""),
        b"\x0e",
    )


def test_newer_schema_becomes_a_version_and_both_are_read(glue: Any) -> None:
    registry = GlueRegistry("shop", client=glue)
    old = AvroSerde(AVRO, registry=registry).serialize("orders", "value", {"id": 7})
    new = AvroSerde(NEWER, registry=registry).serialize("orders", "value", {"id": 8, "y": 1})
    reader = AvroSerde(registry=GlueRegistry("shop", client=glue))
    assert [reader.deserialize("orders", "value", each) for each in (old, new)] == [{"id": 7}, {"id": 8, "y": 1}]


def test_value_that_javas_serializer_compressed_is_read(glue: Any) -> None:
    registry = GlueRegistry("shop", client=glue)
    serde = JsonSerde({"type": "object"}, registry=registry)
    data = serde.serialize("orders", "value", {"id": 7})
    small = data[:1] + b"\x05" + data[2:18] + zlib.compress(data[18:])
    assert serde.deserialize("orders", "value", small) == {"id": 7}
    for wrong in (small[:-6], data[:1] + b"\x05" + data[2:]):
        with pytest.raises(CorruptError, match=r"zlib|cut"):
            serde.deserialize("orders", "value", wrong)


@pytest.mark.parametrize("data", [b"", b"\x03", b"\x03\x01" + bytes(20), b"\x00\x00\x00\x00\x01\x0e"])
def test_bytes_without_the_header_are_corrupt(glue: Any, data: bytes) -> None:
    with pytest.raises(CorruptError, match="do not begin with a byte 3"):
        AvroSerde(registry=GlueRegistry("shop", client=glue)).deserialize("orders", "value", data)


def test_writer_that_may_not_register_says_so(glue: Any) -> None:
    serde = AvroSerde(AVRO, registry=GlueRegistry("shop", client=glue), registers=False)
    with pytest.raises(InvalidError, match="glue:shop has no such version of schema 'orders'"):
        serde.serialize("orders", "value", {"id": 1})


def test_unknown_version_is_refused_with_the_way_out(glue: Any) -> None:
    with pytest.raises(InvalidError, match="give the registry of the producer"):
        AvroSerde(registry=GlueRegistry("shop", client=glue)).deserialize("orders", "value", b"\3\0" + bytes(17))


def test_message_is_named_by_its_place_among_full_names() -> None:
    registry = GlueRegistry("shop", client=object())
    names = ("b.B", "b.B.C", "b.B.A", "b.B.A.D")
    assert [registry.indexes((0,), names, each) for each in sorted(names)] == [b"\0", b"\1", b"\2", b"\3"]


def test_protobuf_takes_the_text_of_its_file(glue: Any) -> None:
    order, registry = order_classes()["shop.Order"], GlueRegistry("shop", client=glue)
    with pytest.raises(InvalidError, match="give it as proto="):
        ProtobufSerde(order, registry=registry)
    serde = ProtobufSerde(order, registry=registry, proto=PROTO)
    data = serde.serialize("orders", "value", order(id=7))
    assert data[18:] == b"\0" + order(id=7).SerializeToString()
    assert serde.deserialize("orders", "value", data) == order(id=7)


class _Failing:
    """A client of Glue that refuses every call so."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        def call(**_: Any) -> None:
            raise client_error(self._code, 400)

        return call


@pytest.mark.parametrize(
    ("code", "kind", "why"),
    [
        ("AccessDeniedException", AccessDeniedError, "allow glue:GetSchemaVersion"),
        ("ThrottlingException", UnavailableError, "ThrottlingException"),
        ("InvalidInputException", InvalidError, "InvalidInputException"),
    ],
)
def test_refusals_of_glue_keep_their_meaning(code: str, kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        AvroSerde(registry=GlueRegistry("shop", client=_Failing(code))).deserialize(
            "orders", "value", b"\3\0" + bytes(17)
        )


@pytest.mark.parametrize("name", ["", 5, None])
def test_registry_without_a_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidError, match="give the name of a registry"):
        GlueRegistry(name)
