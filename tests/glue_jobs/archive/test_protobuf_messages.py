"""Protobuf in the archive: the columns of a message, its values in them, and descriptions that are refused."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    empty_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive.protobuf_messages import descriptor_of, schema_text
from penstock_spark.archive.typed_columns import AS_JSON, Typing, table_fields, value_columns
from penstock_spark.archive.typing_values import ValueTyper
from tests.support.proto_messages import add_fields

SCALARS = (
    ["int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64"],
    ["double", "float", "bool", "string", "bytes"],
)
WELL_KNOWN = (any_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def described(*, with_well_known: bool = True) -> bytes:
    """A FileDescriptorSet of shop/order.proto, as protoc writes it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.extend(each.DESCRIPTOR.name for each in WELL_KNOWN)
    file.enum_type.add(name="State").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number) for number, name in enumerate(("NEW", "DONE"))
    )
    line = file.message_type.add(name="Line")
    add_fields(line, "string sku", "optional int32 n")
    order = file.message_type.add(name="Order")
    for name in ("Counts", "Lines"):
        entry = order.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        add_fields(entry, *(["string key", "int64 value"] if name == "Counts" else ["int32 key", ".shop.Line value"]))
    add_fields(
        order,
        "oneof:paid_by string card",
        "oneof:paid_by .shop.Line goods",
        *(f"{kind} a_{kind}" for kinds in SCALARS for kind in kinds),
        "optional int64 maybe",
        ".shop.State state",
        "optional .shop.State may_be_done",
        ".shop.Line line",
        "repeated .shop.Line items",
        "repeated string tags",
        "repeated .shop.Order.CountsEntry counts",
        "repeated .shop.Order.LinesEntry by_number",
        ".google.protobuf.Timestamp at",
        ".google.protobuf.StringValue name",
        ".google.protobuf.UInt64Value big",
        "repeated .google.protobuf.Int32Value numbers",
        ".google.protobuf.Struct document",
        ".google.protobuf.ListValue several",
        ".google.protobuf.Empty nothing",
        ".google.protobuf.Any packed",
    )
    found = descriptor_pb2.FileDescriptorSet()
    if with_well_known:
        for each in WELL_KNOWN:
            each.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    data: bytes = found.SerializeToString()
    return data


TEXT = schema_text(described(), "shop.Order")


def message(document: dict[str, Any]) -> bytes:
    """The bytes of an order, by Protobuf's own reading of JSON."""
    made = message_factory.GetMessageClass(descriptor_of(TEXT))()
    json_format.ParseDict(document, made)
    data: bytes = made.SerializeToString()
    return data


def typed(*values: bytes | None, text: str = TEXT) -> list[dict[str, Any]]:
    schema = pa.schema([pa.field("value", pa.binary()), *table_fields(value_columns("protobuf", text))])
    typer = ValueTyper(Typing.of("protobuf", text, schema))
    found: list[dict[str, Any]] = typer.add(
        pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    ).to_pylist()
    slow = typer._one_by_one([*values], [*values])
    assert [each.to_pylist() for each in slow] == [[row[name] for row in found] for name in schema.names[1:]]
    return found


def test_types_and_nullability() -> None:
    found = {each.name: each for each in value_columns("protobuf", TEXT).fields}
    line = pa.struct([pa.field("sku", pa.string(), nullable=False), pa.field("n", pa.int32())])
    expected = {
        **dict.fromkeys(("a_int32", "a_sint32", "a_sfixed32"), pa.int32()),
        **dict.fromkeys(("a_int64", "a_sint64", "a_sfixed64", "a_uint32", "a_fixed32", "maybe"), pa.int64()),
        **dict.fromkeys(("a_uint64", "a_fixed64", "big"), pa.decimal128(20, 0)),
        **{"a_double": pa.float64(), "a_float": pa.float32(), "a_bool": pa.bool_(), "a_bytes": pa.binary()},
        **dict.fromkeys(
            ("a_string", "state", "may_be_done", "name", "card", "document", "several", "nothing"), pa.string()
        ),
        **{"line": line, "goods": line, "at": pa.timestamp("us", "UTC")},
        "items": pa.list_(pa.field("element", line, nullable=False)),
        "tags": pa.list_(pa.field("element", pa.string(), nullable=False)),
        "counts": pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        "by_number": pa.map_(pa.int32(), pa.field("value", line, nullable=False)),
        "numbers": pa.list_(pa.field("element", pa.int32(), nullable=False)),
        "packed": pa.struct(
            [pa.field("type_url", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
        ),
    }
    assert {name: each.type for name, each in found.items()} == expected
    nullable = ("maybe", "may_be_done", "line", "at", "name", "big", "document", "several", "nothing", "packed")
    assert {name for name, each in found.items() if each.nullable} == {*nullable, "card", "goods"}
    assert {name for name, each in found.items() if each.metadata == AS_JSON} == {"document", "several", "nothing"}


def test_values_are_those_of_the_message() -> None:
    document = {
        **{f"a_{kind}": 2**31 - 1 for kind in ("int32", "sint32", "sfixed32")},
        **{f"a_{kind}": -(2**63) for kind in ("int64", "sint64", "sfixed64")},
        **{f"a_{kind}": 2**32 - 1 for kind in ("uint32", "fixed32")},
        **{f"a_{kind}": 2**64 - 1 for kind in ("uint64", "fixed64")},
        **{"a_double": 0.1, "a_float": 0.5, "a_bool": True, "a_string": "ä", "a_bytes": "AAE="},
        **{"maybe": 0, "state": "DONE", "line": {"sku": "a", "n": 0}, "items": [{"sku": "b"}], "tags": ["x", ""]},
        **{"counts": {"k": 7}, "by_number": {"5": {"sku": "c"}}, "at": "2026-11-21T10:00:00.123456789Z"},
        **{"name": "", "big": 2**64 - 1, "numbers": [1, 2], "document": {"a": [1, None]}, "several": ["x"]},
        **{"nothing": {}, "goods": {"sku": "d"}},
    }
    [found] = typed(message(document))
    assert found == {
        **document,
        "value": message(document),
        **{f"a_{kind}": Decimal(2**64 - 1) for kind in ("uint64", "fixed64")},
        **{"a_bytes": b"\0\1", "big": Decimal(2**64 - 1), "items": [{"sku": "b", "n": None}], "counts": [("k", 7)]},
        **{"by_number": [(5, {"sku": "c", "n": None})], "at": datetime(2026, 11, 21, 10, 0, 0, 123_456, tzinfo=UTC)},
        **{"document": '{"a": [1.0, null]}', "several": '["x"]', "nothing": "{}", "packed": None},
        **{"may_be_done": None, "card": None, "goods": {"sku": "d", "n": None}, "_raw": None, "_raw_reason": None},
    }


def test_field_without_presence_has_its_default_and_one_with_presence_is_null() -> None:
    [found, tombstone] = typed(b"", None)
    assert (found["a_int64"], found["a_string"], found["state"], found["tags"], found["counts"]) == (
        0,
        "",
        "NEW",
        [],
        [],
    )
    assert {found[name] for name in ("maybe", "may_be_done", "line", "at", "name", "card", "document")} == {None}
    assert set(tombstone.values()) == {None}


def test_value_of_an_enum_that_the_schema_does_not_name_is_its_number() -> None:
    made = message_factory.GetMessageClass(descriptor_of(TEXT))()
    made.state = 7
    assert typed(made.SerializeToString())[0]["state"] == "7"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff", "cannot be decoded: DecodeError"),
        (message({"at": "9999-12-31T23:59:59Z"})[:-1], "cannot be decoded: DecodeError"),
    ],
)
def test_bytes_that_are_no_message_go_to_raw(data: bytes, why: str) -> None:
    good = message({"a_int64": 1})
    found = typed(good, data)
    assert (found[0]["a_int64"], found[0]["_raw"]) == (1, None)
    assert found[1]["_raw"] == data
    assert why in found[1]["_raw_reason"]


def test_time_that_no_calendar_has_goes_to_raw() -> None:
    made = message_factory.GetMessageClass(descriptor_of(TEXT))()
    made.at.seconds = 2**60
    assert "OverflowError" in typed(made.SerializeToString())[0]["_raw_reason"]


def test_required_field_of_proto2_that_is_missing_goes_to_raw() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="old.proto", syntax="proto2")
    old = file.message_type.add(name="Old")
    old.field.add(name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=2)
    add_fields(old, "string text")
    text = schema_text(files.SerializeToString(), "")
    found = typed(b"", b"\x08\x01", b"\x08\x01\x12\x01\xff", text=text)
    assert "required fields are missing: id" in found[0]["_raw_reason"]
    assert (found[1]["id"], found[1]["text"]) == (1, None)
    assert "text: bytes" in found[2]["_raw_reason"]  # proto2 lets any bytes be a string


def test_files_of_google_may_be_missing_from_the_description() -> None:
    text = schema_text(described(with_well_known=False), "shop.Order")
    assert value_columns("protobuf", text) == value_columns("protobuf", TEXT)


def test_the_only_message_of_the_last_file_needs_no_name() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    for name, package in (("a.proto", "a"), ("b.proto", "b")):
        add_fields(files.file.add(name=name, package=package).message_type.add(name="M"), "int64 x")
    assert json.loads(schema_text(files.SerializeToString(), ""))["message"] == "b.M"


@pytest.mark.parametrize(
    ("files", "name", "why"),
    [
        (b"\xff", "shop.Order", "no FileDescriptorSet"),
        (described(), "", "the last file has 2 messages: name one of them"),
        (described(), "shop.Bill", "message 'shop.Bill' is not in the FileDescriptorSet"),
        (b"", "", "has 0 messages"),
    ],
)
def test_description_without_the_message_is_refused(files: bytes, name: str, why: str) -> None:
    with pytest.raises(PenstockError, match=why) as caught:
        schema_text(files, name)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_file_that_an_import_lacks_is_named() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="a.proto", dependency=["gone.proto"])
    add_fields(file.message_type.add(name="M"), "int64 x")
    with pytest.raises(PenstockError, match=r"gone\.proto.*--include_imports"):
        schema_text(files.SerializeToString(), "M")


def test_message_that_holds_itself_is_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    add_fields(files.file.add(name="a.proto", package="a").message_type.add(name="Tree"), ".a.Tree inner")
    with pytest.raises(PenstockError, match="may not hold itself"):
        value_columns("protobuf", schema_text(files.SerializeToString(), ""))
