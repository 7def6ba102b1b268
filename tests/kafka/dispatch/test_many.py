"""A request may name any number of things: each is answered, and none takes the others along."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from kio.index import load_request_schema

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_kafka.apis import open_registry
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import ApiKey, Call, Peer
from penstock_kafka.dispatch.messages import entity_of
from penstock_kafka.errors import KafkaError
from penstock_kafka.service.service import Service
from tests.kafka.running_gateway import SETTINGS

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
