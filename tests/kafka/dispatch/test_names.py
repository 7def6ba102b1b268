"""Names of Kafka in the service: two stay two, and each comes back."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from hypothesis import example, given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.ids import parse_group_name
from penstock_kafka.apis import NAMING_ROOMS
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Api, ApiKey, Call, Peer
from penstock_kafka.dispatch.messages import entity_of
from penstock_kafka.dispatch.names import kafka_name, kafka_prefix, service_name, service_prefixes, with_service_names
from penstock_kafka.service.service import Service
from tests.kafka.groups.desk import GroupDesk
from tests.kafka.running_gateway import SETTINGS, running_gateway

_NAMES = st.text(min_size=1, max_size=20) | st.text("k./af: ", min_size=1, max_size=9) | st.text("ab._-", min_size=1)
_ODD = ["team/billing", "billing:v2", "my group", "caf\u00e9", "kafka..a", ".", ".."]


@given(_NAMES, _NAMES)
@example("a/b", "kafka..a.2fb")
def test_names_stay_apart_and_come_back(first: str, second: str) -> None:
    assert kafka_name(service_name(first)) == first
    assert (service_name(first) == service_name(second)) == (first == second)
    parse_group_name(service_name(first))


@given(_NAMES, _NAMES)
@example("team", "team/billing")
@example("kafka.", "a/b")
def test_prefix_begins_the_same_names_on_both_sides_or_is_refused(prefix: str, rest: str) -> None:
    try:
        prefixes = service_prefixes(prefix)
    except ValueError:
        assert "kafka..".startswith(prefix)
        return
    assert {kafka_prefix(each) for each in prefixes} == {prefix}
    for name in (prefix + rest, rest):
        assert service_name(name).startswith(prefixes) == name.startswith(prefix)


@given(st.text("ab._-", min_size=1, max_size=20).filter(lambda name: name not in (".", "..")))
def test_name_that_the_service_takes_stays_as_it_is(name: str) -> None:
    assert service_name(name) == name == kafka_name(name)


@given(st.text("kaf.0123456789", max_size=12).map("kafka..".__add__))
def test_name_that_only_looks_like_one_of_kafka_stays(name: str) -> None:
    assert service_name(kafka_name(name)) == service_name(name) or service_name(kafka_name(name)) == name


@pytest.mark.parametrize("group", _ODD)
def test_members_of_a_group_with_any_name_join_commit_and_are_described(group: str) -> None:
    async def work(service: MemoryPenstock) -> None:
        desk = GroupDesk(service)
        joined = await desk.join(group=group, group_instance_id="pod/1")
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
        member: Mapping[str, Any] = {"group_id": group, "member_id": joined["member_id"], "group_instance_id": "pod/1"}
        generation = {"generation_id_or_member_epoch": joined["generation_id"]}
        await desk.ask(ApiKey.OFFSET_COMMIT, 9, **member, **generation, topics=topics)
        [described] = (await desk.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[group]))["groups"]
        assert (described["group_id"], described["members"][0]["group_instance_id"]) == (group, "pod/1")
        assert [each["group_id"] for each in (await desk.ask(ApiKey.LIST_GROUPS, 0))["groups"]] == [group]
        [fetched] = (await desk.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": group, "topics": None}]))["groups"]
        assert (fetched["group_id"], fetched["topics"][0]["partitions"][0]["committed_offset"]) == (group, 0)

    with MemoryPenstock() as service:
        service.create_topic("orders")
        asyncio.run(work(service))


_LEAVES = frozenset(  # of Kafka's messages, at any depth: a string there, or a list of strings, is a name
    {
        *("group_id", "group_ids", "groups", "groups_names", "group_instance_id", "instance_id"),
        *("transactional_id", "transactional_ids", "v3_and_below_transactional_id"),
    }
)


def _filled(kind: Any, text: str) -> dict[str, Any]:
    """An answer of this kind in which each string is the text, and each list has one entry."""
    found: dict[str, Any] = {}
    for each in fields(kind):
        inner = each.type
        if NoneType in get_args(inner):
            inner = next(one for one in get_args(inner) if one is not NoneType)
        is_list = get_origin(inner) is tuple
        inner = get_args(inner)[0] if is_list else inner
        is_text = each.metadata.get("kafka_type") == "string"
        value = _filled(inner, text) if is_dataclass(inner) else text if is_text else None
        if value is not None:
            found[each.name] = [value] if is_list else value
    return found


def _strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif is_dataclass(value):
        for each in fields(value):
            yield from _strings(getattr(value, each.name), each.name)
    elif isinstance(value, Mapping):
        for own, each in value.items():
            yield from _strings(each, own)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each, name)


def _versions() -> list[tuple[Api, int]]:
    with MemoryPenstock() as service:
        context = Context(service=Service(ThreadedTransport(service.transport)), settings=SETTINGS)
        apis = [api for room in NAMING_ROOMS for api in room(context)]
    return [(api, version) for api in apis for version in range(api.versions[0], api.versions[1] + 1)]


async def _told(api: Api, call: Call) -> Answer | None:
    return await with_service_names(api).handler(call)


def test_names_have_the_other_form_wherever_a_message_has_them() -> None:
    seen = set()
    for api, version in _versions():
        kind: Any = load_request_schema(api.key, version)
        request = entity_of(kind, _filled(kind, "a/b"))
        answer = _filled(load_response_schema(api.key, version), "kafka..a.2fb")
        heard: list[Call] = []

        async def handler(call: Call, heard: list[Call] = heard, answer: Answer = answer) -> Answer:
            heard.append(call)
            return answer

        call = Call(key=api.key, version=version, client_id="", peer=Peer(number=1, address=""), request=request)
        told = asyncio.run(_told(replace(api, handler=handler), call))
        for name, text in _strings(heard[0].request):
            assert text == ("kafka..a.2fb" if name in _LEAVES else "a/b"), (api.key.name, version, name)
        for name, text in _strings(told):
            assert text == ("a/b" if name in _LEAVES else "kafka..a.2fb"), (api.key.name, version, name)
            seen.add(name)
    assert {"transactional_id", "group_instance_id", "instance_id"} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("group", _ODD[:4])
def test_consumer_of_a_group_with_any_name_gets_its_records(group: str) -> None:
    with MemoryPenstock() as service, running_gateway(service) as gateway:
        service.create_topic("_schemas")
        with service.producer() as producer:
            producer.send("_schemas", b"record")
        client = {"bootstrap.servers": gateway.address}
        consumer = Consumer({**client, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe(["_schemas"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"record"
        consumer.commit(asynchronous=False)
        assert [each.group for each in service.admin().list_groups()] == [service_name(group)]
        admin = AdminClient(client)
        listed = admin.list_consumer_groups().result().valid
        assert [each.group_id for each in listed] == [group]
        consumer.close()
