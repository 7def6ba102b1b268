"""`penstock consume --value-format`: values of Avro and JSON Schema as JSON, by a registry or a file."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run
from tests.support.schema_registry import AUTH, SchemaRegistry, running_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    ],
}
VALUE = {"id": 1, "at": datetime(2026, 11, 21, tzinfo=UTC), "paid": Decimal("9.50"), "raw": b"\xff"}
WRITTEN = {"id": 1, "at": "2026-11-21T00:00:00+00:00", "paid": "9.50", "raw": "/w=="}


def put(service: MemoryPenstock, *values: bytes) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        for value in values:
            producer.send("orders", value).result()


def test_avro_of_a_registry_is_written_as_json(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_registry() as registry:
        registry.needs_auth = True
        serde = AvroSerde(ORDER, registry=ConfluentRegistry(registry.url, auth=AUTH))
        put(service, serde.serialize("orders", "value", VALUE))
        arguments = ("consume", "orders", "--value-format", "avro", "--registry", registry.url, "-n", "1")
        monkeypatch.setenv("PENSTOCK_REGISTRY_AUTH", ":".join(AUTH))
        result = run(service.transport, *arguments)
        assert (result.exit_code, json.loads(result.stdout)) == (0, WRITTEN)
        line = json.loads(run(service.transport, *arguments, "--json").stdout)
        assert (line["offset"], json.loads(line["value"])) == (0, WRITTEN)
        monkeypatch.setenv("PENSTOCK_REGISTRY_AUTH", "ada:wrong")
        assert "give auth= or token=" in run(service.transport, *arguments).stderr


def test_avro_of_a_file_is_written_as_json(service: MemoryPenstock, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    put(service, AvroSerde(ORDER).serialize("orders", "value", VALUE))
    result = run(service.transport, "consume", "orders", "--value-format", "avro", "--schema", str(path), "-n", "1")
    assert json.loads(result.stdout) == WRITTEN


def test_value_of_no_such_format_is_undecodable(service: MemoryPenstock, registry: SchemaRegistry) -> None:
    serde = JsonSerde({"type": "object"}, registry=ConfluentRegistry(registry.url))
    put(service, b"plain", serde.serialize("orders", "value", {"id": 1}))
    arguments = ("consume", "orders", "--value-format", "json", "--registry", registry.url, "-n", "1")
    failed = run(service.transport, *arguments)
    assert failed.exit_code == 1
    assert "offset 0" in failed.stderr
    result = run(service.transport, *arguments, "--on-undecodable", "skip")
    assert json.loads(result.stdout) == {"id": 1}
    assert "skipped 1 undecodable batch of orders[0]" in result.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--registry", "http://x"], "need --value-format"),
        (["--value-format", "avro"], "needs --registry, or the --schema"),
        (["--value-format", "protobuf"], "is not one of"),
        (["--value-format", "avro", "--schema", "missing.avsc"], "cannot be read"),
        (["--value-format", "json", "--registry", "x"], "give http://host"),
        (["--value-format", "json", "--registry", "glue:"], "give the name of a registry"),
    ],
)
def test_options_that_do_not_fit_are_refused(service: MemoryPenstock, options: list[str], why: str) -> None:
    put(service)
    result = run(service.transport, "consume", "orders", *options)
    assert result.exit_code != 0
    assert why in result.stderr


def test_schema_file_that_is_too_large_is_refused_by_its_name(service: MemoryPenstock, tmp_path: Path) -> None:
    put(service)
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps({**ORDER, "doc": ""}).replace('""', '"' + "é" * 500_000 + '"'), encoding="utf-8")
    result = run(service.transport, "consume", "orders", "--value-format", "avro", "--schema", str(path))
    assert result.exit_code != 0
    assert f"schema {str(path)!r} has more than 1,000,000 bytes" in result.stderr


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found
