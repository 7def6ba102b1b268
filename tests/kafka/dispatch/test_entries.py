"""Entries are counted as kio reads them, in each request of each version that the gateway serves.

A request may name any number of things: each is answered, and none takes the others along.
"""

import asyncio
import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.limits import KAFKA_REQUEST_ENTRIES_MAX
from penstock_kafka.apis import open_registry
from penstock_kafka.context import Context
from penstock_kafka.dispatch import entries
from penstock_kafka.dispatch.api import Answer, Api, ApiKey, Call, Peer, Registry
from penstock_kafka.dispatch.messages import MalformedRequestError, entity_of, read_prefix, read_request
from penstock_kafka.errors import KafkaError
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


async def _nothing(_: Call) -> Answer:
    return {}


PRODUCE = Api(key=ApiKey.PRODUCE, versions=(3, 9), handler=_nothing, bytes_max=8)


def test_registry_finds_the_versions_that_are_declared() -> None:
    registry = Registry([PRODUCE])
    assert [registry.find(0, version) is PRODUCE for version in (2, 3, 9, 10)] == [False, True, True, False]
    assert registry.find(1, 3) is None
    assert (registry.bytes_max(0, is_in=True), registry.bytes_max(1, is_in=True)) == (8, 0)
    assert (registry.bytes_max(0, is_in=False), registry.bytes_max(18, is_in=False)) == (0, 16_384)


def test_registry_announces_what_it_serves() -> None:
    assert Registry([PRODUCE]).versions()["api_keys"] == [
        {"api_key": 0, "min_version": 3, "max_version": 9},
        {"api_key": 18, "min_version": 0, "max_version": 4},
    ]


def test_registry_refuses_two_handlers_of_one_api() -> None:
    with pytest.raises(ValueError, match="two handlers declare PRODUCE"):
        Registry([PRODUCE, PRODUCE])


_COUNT = 1_005
_NAMES = [*(f"missing-{number}" for number in range(_COUNT - 1)), "orders"]
_MEMBERS = [{"member_id": each, "group_instance_id": None} for each in _NAMES]
_TOPIC = 2
_UNKNOWN_GROUP = (KafkaError.group_id_not_found, KafkaError.unknown_member_id)

Fields = Mapping[str, Any]


@pytest.fixture(scope="module")
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders")
        yield service


def _each(field: str, **others: Any) -> list[dict[str, Any]]:
    return [{field: name, **others} for name in _NAMES]


_REQUESTS: Sequence[tuple[ApiKey, int, Fields, str]] = [
    (ApiKey.METADATA, 12, {"topics": _each("name", topic_id=None)}, "topics"),
    (ApiKey.OFFSET_FETCH, 8, {"groups": _each("group_id", topics=None)}, "groups"),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": _NAMES}, "groups"),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": _NAMES}, "groups"),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": _NAMES}, "groups"),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": _each("group_id", topics=None)}, "groups"),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": _NAMES}, "results"),
    (ApiKey.LEAVE_GROUP, 4, {"group_id": "g", "members": _MEMBERS}, "members"),
    (ApiKey.LIST_OFFSETS, 7, {"topics": _each("name", partitions=[{"partition_index": 0, "timestamp": -1}])}, "topics"),
    (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": _each("resource_name", resource_type=_TOPIC)}, "results"),
    (ApiKey.DELETE_RECORDS, 2, {"topics": _each("name", partitions=[])}, "topics"),
]


async def _ask(service: MemoryPenstock, key: ApiKey, version: int, fields: Fields) -> Mapping[str, Any]:
    context = Context(service=Service(ThreadedTransport(service.transport)), settings=SETTINGS)
    api = open_registry(context).find(key, version)
    assert api is not None
    kind: Any = load_request_schema(key, version)
    peer = Peer(number=1, address="test")
    call = Call(key=key, version=version, client_id="app", peer=peer, request=entity_of(kind, fields))
    answer = await api.handler(call)
    assert answer is not None
    return answer


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version", "fields", "answers"), _REQUESTS, ids=[key.name for key, *_ in _REQUESTS])
def test_each_is_answered_by_itself(
    service: MemoryPenstock, key: ApiKey, version: int, fields: Fields, answers: str
) -> None:
    found = (asyncio.run(_ask(service, key, version, fields)))[answers]
    assert len(found) == _COUNT
    assert KafkaError.invalid_request not in {each.get("error_code") for each in found}
    assert found[-1].get("error_code", KafkaError.none) in (KafkaError.none, *_UNKNOWN_GROUP)


@pytest.mark.slow
def test_offsets_of_many_topics_are_deleted(service: MemoryPenstock) -> None:
    service.admin().commit_group_offsets("kept", {TopicPartition("orders", 0): 0})
    fields = {"group_id": "kept", "topics": _each("name", partitions=[{"partition_index": 0}])}
    answer = asyncio.run(_ask(service, ApiKey.OFFSET_DELETE, 0, fields))
    assert answer["error_code"] is KafkaError.none
    assert len(answer["topics"]) == _COUNT
    assert answer["topics"][-1]["partitions"] == [{"partition_index": 0, "error_code": KafkaError.none}]


METADATA_OF_NOTHING = b"\x00\x00\x00\x00"  # an empty list of topics, version 1


def test_request_is_read_with_its_client() -> None:
    frame = request_bytes(3, 1, 7, METADATA_OF_NOTHING)[4:]
    prefix = read_prefix(frame)
    assert prefix == (3, 1, 7)
    client_id, request = read_request(prefix, frame)
    assert client_id == "test"
    assert request.topics == ()


@pytest.mark.parametrize("body", [b"", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x09ab"])
def test_request_is_refused_when_its_bytes_are_not_its_message(body: bytes) -> None:
    frame = request_bytes(3, 1, 7, body)[4:]
    with pytest.raises(MalformedRequestError):
        read_request(read_prefix(frame), frame)


def test_frame_without_a_header_is_refused() -> None:
    with pytest.raises(MalformedRequestError, match="has no header"):
        read_prefix(b"\x00" * 7)


@pytest.mark.parametrize("version", range(14))
def test_one_answer_serves_each_version_of_metadata(version: int) -> None:
    partition = {"error_code": 0, "partition_index": 1, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {"error_code": 3, "name": "orders", "topic_id": UUID(int=7), "partitions": [partition]}
    answer = {"brokers": [{"node_id": 1, "host": "h", "port": 2}], "cluster_id": "c", "topics": [topic]}
    entity = entity_of(load_response_schema(3, version), answer)
    assert entity.brokers[0].host == "h"
    assert entity.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert entity.topics[0].partitions[0].replica_nodes == (1,)
    assert hasattr(entity.topics[0], "topic_id") == (version >= 10)


def test_missing_values_are_empty_and_times_are_milliseconds() -> None:
    entity = entity_of(load_response_schema(1, 11), {"throttle_time": 1_500})
    assert entity.throttle_time == timedelta(seconds=1.5)
    assert entity.responses == ()
    assert entity.error_code is ErrorCode.none
