"""Entries are counted as kio reads them, in each request of each version that the gateway serves."""

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.limits import KAFKA_REQUEST_ENTRIES_MAX
from penstock_kafka.apis import open_registry
from penstock_kafka.context import Context
from penstock_kafka.dispatch import entries
from penstock_kafka.dispatch.api import ApiKey
from penstock_kafka.dispatch.messages import MalformedRequestError, read_prefix, read_request
from penstock_kafka.security.users import Users
from penstock_kafka.service.service import Service
from tests.kafka.running_gateway import SETTINGS, request_bytes

_VALUES: dict[str, Any] = {
    "string": "a name",
    "bytes": b"x" * 200,
    "records": b"y" * 300,
    "bool": True,
    "uuid": UUID(int=7),
    "timedelta_i32": timedelta(seconds=1),
    "timedelta_i64": timedelta(seconds=1),
    "datetime_i64": datetime(2026, 1, 1, tzinfo=UTC),
}


def _served() -> list[tuple[int, int]]:
    with MemoryPenstock() as service:
        context = Context(service=Service(ThreadedTransport(service.transport)), settings=SETTINGS)
        registry = open_registry(context, Users({}))
        return [
            (int(key), version)
            for key in ApiKey
            for version in range(20)
            if registry.find(int(key), version) is not None
        ]


def _sample(kind: Any, count: int) -> tuple[Any, int]:
    """A request whose arrays have `count` entries each, and the number of all of them."""
    values: dict[str, Any] = {}
    found = 0
    for field in dataclasses.fields(kind):
        if "tag" in field.metadata:
            continue
        inner: Any = field.type
        if get_origin(inner) is UnionType:
            inner = next(each for each in get_args(inner) if each is not NoneType)
        is_list = get_origin(inner) is tuple
        if is_list:
            inner = get_args(inner)[0]
        if dataclasses.is_dataclass(inner):
            value, nested = _sample(inner, count)
        else:
            value, nested = _VALUES.get(field.metadata.get("kafka_type", ""), 3), 0
        found += count * (1 + nested) if is_list else nested
        values[field.name] = (value,) * count if is_list else value
    return kind(**values), found


@pytest.mark.parametrize(("key", "version"), _served())
def test_entries_are_those_that_kio_reads(monkeypatch: pytest.MonkeyPatch, key: int, version: int) -> None:
    kind: Any = load_request_schema(key, version)
    request, count = _sample(kind, 3)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, request)
    body = buffer.getvalue()
    monkeypatch.setattr(entries, "KAFKA_REQUEST_ENTRIES_MAX", count)
    place = entries._Bytes(body, 0)
    for step in entries._steps(kind):
        step(place)
    assert (place.at, place.left) == (len(body), 0)


@pytest.mark.parametrize("spare", [0, 1])
def test_request_is_refused_when_it_lists_too_much(spare: int) -> None:
    count = KAFKA_REQUEST_ENTRIES_MAX + spare
    frame = request_bytes(3, 1, 7, count.to_bytes(4, "big") + b"\x00\x01a" * count)[4:]
    if spare:
        with pytest.raises(MalformedRequestError, match="more than 20,000 entries"):
            read_request(read_prefix(frame), frame)
    else:
        assert len(read_request(read_prefix(frame), frame)[1].topics) == count


@pytest.mark.parametrize(("version", "body"), [(1, b"\x00\x00\x00\x02\x7f\xff" + bytes(25_000)), (9, b"\xff" * 25_000)])
def test_bytes_that_are_no_request_are_left_to_the_reader(version: int, body: bytes) -> None:
    frame = request_bytes(3, version, 7, body, is_flexible=version == 9)[4:]
    with pytest.raises(MalformedRequestError, match="cannot be read"):
        read_request(read_prefix(frame), frame)
