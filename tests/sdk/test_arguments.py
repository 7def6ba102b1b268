"""A wrong argument raises an error before anything is sent. The error names the value and what to use."""

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    InvalidError,
    PenstockError,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from penstock.consumer.settings import ConsumerOptions, ConsumerSettings
from penstock.producer.settings import ProducerOptions, ProducerSettings
from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport

ORDERS = TopicPartition("orders", 0)
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"max_poll_records": 0}, "max_poll_records=0: use a number from 1"),
    ({"max_poll_records": "x"}, "max_poll_records='x': use a number from 1"),
    ({"max_in_flight": True}, "max_in_flight=True: use a number from 1"),
    ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms=-1: use a number from 0"),
    ({"metadata_max_age_ms": -1}, "metadata_max_age_ms=-1: use a number from 0"),
    ({"consumer_timeout_ms": -1}, "consumer_timeout_ms=-1: use a number from 0"),
    ({"retry_backoff_ms": 0}, "retry_backoff_ms=0: use a number from 1"),
    ({"retry_backoff_max_ms": 50}, "retry_backoff_max_ms=50: use a number from 100"),
    ({"client_id": 5}, "client_id=5: give a string"),
    ({"on_assigned": 5}, "on_assigned=5: give a function"),
    ({"on_revoked": "x"}, "on_revoked='x': give a function"),
    ({"max_poll_interval_ms": "x"}, "max_poll_interval_ms='x': use a number from 1"),
    ({"session_timeout_ms": "x"}, "session_timeout_ms"),
    ({"heartbeat_interval_ms": "x"}, "heartbeat_interval_ms"),
    ({"group_instance_id": 5}, "group_instance_id=5: give a string"),
    ({"fetch_max_bytes": "x"}, "fetch_max_bytes='x': use a number from 1"),
    ({"buffer_bytes": None}, "buffer_bytes=None: use a number from 1"),
    ({"fetch_wait_ms": None}, "fetch_wait_ms=None: use a number from 0"),
    ({"fetch_interval_ms": -1}, "fetch_interval_ms=-1: use a number from 0"),
    ({"fetch_interval_ms": 60_001}, "fetch_interval_ms=60001: use 0 to 60000"),
    ({"auto_offset_reset": None}, "auto_offset_reset=None: use 'earliest'"),
    ({"delivery": None}, "delivery=None: use 'at_least_once'"),
    ({"partition_assignment_strategy": 5}, "partition_assignment_strategy=5: use"),
    ({"group_id": "a b"}, "'a b'"),
    ({"group_id": ""}, "''"),
    ({"group_id": 7}, "7"),
]
CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda consumer: consumer.poll(0), "max_records=0: use a number from 1"),
    (lambda consumer: consumer.poll("x"), "max_records='x'"),
    (lambda consumer: consumer.poll(timeout_ms=-1), "timeout_ms=-1: use a number from 0"),
    (lambda consumer: consumer.poll(timeout_ms="x"), "timeout_ms='x'"),
    (lambda consumer: consumer.seek(TopicPartition("orders", 0), -1), "offset=-1: use a whole number from 0"),
    (lambda consumer: consumer.seek(TopicPartition("orders", 0), "x"), "offset='x'"),
    (lambda consumer: consumer.seek(TopicPartition("orders", 0), None), "offset=None"),
    (lambda consumer: consumer.seek("orders", 0), "partition='orders': give a TopicPartition"),
    (lambda consumer: consumer.seek(("orders", "0"), 0), "partition=('orders', '0')"),
    (lambda consumer: consumer.assign("orders"), "partitions='orders': give a list of TopicPartition"),
    (lambda consumer: consumer.assign(TopicPartition("orders", 0)), "partitions=TopicPartition(topic='orders'"),
    (lambda consumer: consumer.assign([1]), "partition=1: give a TopicPartition"),
    (lambda consumer: consumer.assign(None), "partitions=None"),
    (lambda consumer: consumer.seek_to_beginning("orders"), "partition='orders'"),
    (lambda consumer: consumer.seek_to_end(None), "partition=None"),
    (lambda consumer: consumer.pause("orders"), "partition='orders'"),
    (lambda consumer: consumer.resume(0), "partition=0"),
    (lambda consumer: consumer.position(None), "partition=None"),
    (lambda consumer: consumer.position("orders"), "partition='orders'"),
    (lambda consumer: consumer.commit({"orders": 1}), "offsets: partition='orders': give a TopicPartition"),
    (lambda consumer: consumer.commit({ORDERS: None}), "offsets: orders[0]=None: use a whole number from 0"),
    (lambda consumer: consumer.commit([ORDERS]), "give a dict, such as {TopicPartition('orders', 0): 42}"),
    (lambda consumer: consumer.committed(None), "partition=None"),
    (
        lambda consumer: consumer.committed(TopicPartition("orders", None)),  # type: ignore[arg-type]  # it is refused
        "partition=TopicPartition(topic='orders', partition=None)",
    ),
    (lambda consumer: consumer.beginning_offsets("orders"), "partitions='orders'"),
    (lambda consumer: consumer.beginning_offsets([None]), "partition=None"),
    (lambda consumer: consumer.end_offsets(None), "partitions=None"),
    (lambda consumer: consumer.offsets_for_times({"orders": 0}), "timestamps: partition='orders'"),
    (lambda consumer: consumer.offsets_for_times({ORDERS: None}), "timestamp=None: use 'earliest', 'latest', or"),
    (lambda consumer: consumer.offsets_for_times(None), "timestamps=None: give a dict"),
]


SENDS: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "None is not a name: give a string"),
    ({"topic": ["orders"]}, "['orders'] is not a name"),
    ({"topic": "a b"}, "'a b'"),
    ({"partition": "0"}, "partition='0': use a whole number from 0"),
    ({"partition": 0.5}, "partition=0.5"),
    ({"partition": -1}, "partition=-1"),
    ({"value": 5}, "value=5: give bytes, str or None"),
    ({"value": {}}, "value={}: give bytes, str or None"),
    ({"key": 5}, "key=5: give bytes, str or None"),
    ({"headers": 5}, "headers=5: give a dict or pairs, of names (str) and values (bytes, str or None)"),
    ({"headers": {5: b"a"}}, "(the name 5)"),
    ({"headers": "ab"}, "headers='ab'"),
    ({"headers": [("a", 5)]}, "headers=[('a', 5)]"),
    ({"timestamp_ms": "x"}, "timestamp_ms='x': give milliseconds since 1970"),
    ({"timestamp_ms": 0.5}, "timestamp_ms=0.5: give milliseconds since 1970"),
    ({"on_delivery": 5}, "on_delivery=5: give a function, or None"),
]
ADMIN_CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda admin: admin.create_topic(None), "None is not a name"),
    (lambda admin: admin.create_topic("orders", None), "partitions=None: use a whole number from 1"),
    (lambda admin: admin.create_topic("orders", "2"), "partitions='2': use a whole number from 1"),
    (lambda admin: admin.create_topic("orders", config="y"), "config='y': give a dict"),
    (lambda admin: admin.create_topic("orders", config={"retention_ms": b"y"}), "cannot be sent as JSON"),
    (lambda admin: admin.create_topic("orders", config={"retention_ms": float("nan")}), "cannot be sent as JSON"),
    (lambda admin: admin.describe_topic(None), "None is not a name"),
    (lambda admin: admin.alter_topic("orders", None), "config=None: give a dict"),
    (lambda admin: admin.alter_topic(5, {}), "5 is not a name"),
    (lambda admin: admin.add_partitions("orders", None), "partitions=None"),
    (lambda admin: admin.add_partitions("orders", True), "partitions=True"),
    (lambda admin: admin.delete_topic(None), "None is not a name"),
    (lambda admin: admin.list_offsets(None), "None is not a name"),
    (lambda admin: admin.list_offsets("orders", None), "timestamp=None: use 'earliest', 'latest', or milliseconds"),
    (lambda admin: admin.offsets_for_times("orders"), "timestamps='orders'"),
    (lambda admin: admin.offsets_for_times({5: 5}), "timestamps: partition=5"),
    (lambda admin: admin.truncate("orders", None), "before_offsets=None: give a dict, such as {0: 42}"),
    (lambda admin: admin.truncate("orders", {"0": 5}), "before_offsets: partition='0'"),
    (lambda admin: admin.truncate("orders", {0: None}), "before_offsets: of partition 0=None"),
    (lambda admin: admin.group_offsets(None), "None is not a name"),
    (lambda admin: admin.group_offsets("g", 5), "5 is not a name"),
    (lambda admin: admin.commit_group_offsets("g", None), "offsets=None"),
    (lambda admin: admin.commit_group_offsets("g", {"orders": 5}), "offsets: partition='orders'"),
    (lambda admin: admin.commit_group_offsets("g", {ORDERS: "5"}), "offsets: orders[0]='5'"),
    (lambda admin: admin.commit_group_offsets("g", {ORDERS: 5}, metadata=None), "metadata=None: give a string"),
    (lambda admin: admin.describe_group(None), "None is not a name"),
    (lambda admin: admin.alter_group("g", None), "config=None"),
    (lambda admin: admin.alter_group(None, {}), "None is not a name"),
    (lambda admin: admin.delete_group(None), "None is not a name"),
    (lambda admin: admin.reset_group_offsets("g", None), "None is not a name"),
    (lambda admin: admin.reset_group_offsets("g", "orders", to=5), "to=5: use 'earliest' or 'latest'"),
    (lambda admin: admin.reset_group_offsets("g", "orders", timestamp_ms="x"), "timestamp_ms='x'"),
    (lambda admin: admin.reset_group_offsets("g", "orders", shift_by="x"), "shift_by='x': use a whole number"),
    (lambda admin: admin.reset_group_offsets("g", "orders", offsets=[1]), "offsets=[1]: give a dict"),
    (lambda admin: admin.reset_group_offsets("g", "orders", to="latest", partitions=0), "partitions=0: give a list"),
    (lambda admin: admin.reset_group_offsets("g", "orders", to="latest", partitions=["0"]), "partition='0'"),
    (lambda admin: admin.take_zone_out(None), "zone=None: give a string"),
    (lambda admin: admin.let_zone_in("a", None), "reason=None: give a string"),
    (lambda admin: admin.partitions("orders"), "topics='orders': give a list of names"),
    (lambda admin: admin.partitions([None]), "None is not a name"),
    (lambda admin: admin.partitions(None), "topics=None"),
]


@pytest.mark.parametrize(("settings", "says"), SETTINGS, ids=lambda each: str(each)[:40])
def test_settings_of_a_consumer(service: MemoryPenstock, settings: dict[str, Any], says: str) -> None:
    for make in (service.consumer, service.async_consumer):
        with pytest.raises(InvalidError) as caught:
            make("orders", **{"group_id": "g", **settings})
        assert says in str(caught.value)


@pytest.mark.parametrize("topics", [(["orders"],), (5,)])
def test_topics_of_a_consumer(service: MemoryPenstock, topics: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidError, match="a string of its own"):
        service.consumer(*topics)


@pytest.mark.parametrize(("call", "says"), CALLS, ids=[says[:40] for _, says in CALLS])
def test_calls_of_a_consumer(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, call: Callable[[Any], object], says: str
) -> None:
    service.create_topic("orders")
    with clients.consumer(transport=faulty, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([ORDERS])
        with pytest.raises(InvalidError) as caught:
            call(consumer)
        assert says in str(caught.value)
        assert faulty.calls == []


@pytest.mark.parametrize(("call", "says"), ADMIN_CALLS, ids=[says[:40] for _, says in ADMIN_CALLS])
def test_calls_of_an_admin(faulty: FaultyTransport, call: Callable[[Any], Any], says: str) -> None:
    async def refused_too() -> None:
        async with AsyncAdmin(transport=ThreadedTransport(faulty)) as admin:
            await call(admin)

    with Admin(transport=faulty) as admin, pytest.raises(InvalidError) as caught:
        call(admin)
    assert says in str(caught.value)
    with pytest.raises(InvalidError) as caught:
        asyncio.run(refused_too())
    assert says in str(caught.value)
    assert faulty.calls == []


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(("arguments", "says"), SENDS, ids=[says[:40] for _, says in SENDS])
def test_sends_of_a_producer(
    clients: ClientKind, service: MemoryPenstock, arguments: dict[str, Any], says: str, is_known: bool
) -> None:
    service.create_topic("orders")
    with clients.producer() as producer:
        if is_known:
            producer.send("orders", b"v").result(60)
        with pytest.raises(InvalidError) as caught:
            producer.send(**{"topic": "orders", "value": b"v", **arguments})
        assert says in str(caught.value)
    assert len(service.records("orders")) == is_known


@pytest.mark.parametrize(("arguments", "says"), SENDS[:-1], ids=[says[:40] for _, says in SENDS[:-1]])
def test_sends_in_a_transaction(service: MemoryPenstock, arguments: dict[str, Any], says: str) -> None:
    service.create_topic("orders")
    with service.producer(transactional_id="t") as producer:
        with pytest.raises(InvalidError) as caught, producer.transaction() as transaction:
            transaction.send(**{"topic": "orders", "value": b"v", **arguments})
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "group", "says"),
    [
        ({"orders": 1}, "g", "offsets: partition='orders'"),
        ({ORDERS: None}, "g", "offsets: orders[0]=None"),
        (None, "g", "offsets=None: give a dict"),
        ({ORDERS: 1}, None, "group=None: give the consumer, or the name of a group"),
        ({ORDERS: 1}, "a b", "'a b'"),
    ],
)
def test_offsets_of_a_transaction(service: MemoryPenstock, offsets: Any, group: Any, says: str) -> None:
    with service.producer(transactional_id="t") as producer:
        with pytest.raises(InvalidError) as caught, producer.transaction() as transaction:
            transaction.send_offsets(offsets, group)
        assert says in str(caught.value)


def test_timeouts_of_a_producer(clients: ClientKind) -> None:
    with clients.producer() as producer:
        for call in (producer.flush, producer.close):
            with pytest.raises(InvalidError, match="timeout='x': use a number from 0"):
                call("x")


@pytest.mark.parametrize(
    ("options", "settings"), [(ProducerOptions, ProducerSettings), (ConsumerOptions, ConsumerSettings)]
)
def test_type_checkers_and_help_see_every_setting(options: type, settings: type) -> None:
    fields = {field.name: field.type for field in dataclasses.fields(settings)}
    assert options.__annotations__ == fields
    named = re.findall(r"^ {4}(\w+): ", inspect.getdoc(settings) or "", re.MULTILINE)
    assert named == list(fields)


@pytest.mark.parametrize("client", [Producer, AsyncProducer, Consumer, AsyncConsumer])
def test_help_of_a_client_shows_every_setting(client: type) -> None:
    settings = ProducerSettings if "Producer" in client.__name__ else ConsumerSettings
    shown = inspect.signature(client).parameters
    for field in dataclasses.fields(settings):
        assert shown[field.name].default == field.default
        assert f"{field.name}: " in (vars(client)["__init__"].__doc__ or "")
    assert "options" not in shown


@pytest.mark.parametrize("acks", ["one", "leader", "1"])
def test_acks_of_one_zone_has_three_names_and_is_sent_as_one(
    clients: ClientKind, service: MemoryPenstock, acks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create_topic("orders")
    sent: list[bytes] = []
    call = service.transport.call

    def record(*request: Any) -> Any:
        sent.append(request[-1])
        return call(*request)

    monkeypatch.setattr(service.transport, "call", record)
    with clients.producer(acks=acks) as producer:
        assert producer.send("orders", b"v").result(60).offset == 0
    assert any(b'"acks":"one"' in body.replace(b" ", b"") for body in sent)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"linger_ms": -1}, "linger_ms=-1: use a number from 0"),
        ({"linger_ms": "5"}, "linger_ms='5'"),
        ({"max_in_flight": 0}, "max_in_flight=0: use a number from 1"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms=-1: use a number from 1"),
        ({"transactional_id": "a b"}, "'a b'"),
        ({"transactional_id": ""}, "''"),
        ({"acks": 1}, "acks=1: use one of none, one, quorum, all"),
        ({"acks": None}, "acks=None: use one of none, one"),
        ({"acks": "two"}, "acks='two': use one of none, one"),
        ({"acks": "one", "transactional_id": "t"}, "transactions need 'quorum' or 'all'"),
        ({"batch_bytes": "x"}, "batch_bytes='x': use a number from 1"),
        ({"max_request_bytes": None}, "max_request_bytes=None: use a number from 1"),
        ({"buffer_bytes": None}, "buffer_bytes=None: use a number from 1"),
        ({"max_block_ms": "x"}, "max_block_ms='x': use a number from 0"),
        ({"delivery_timeout_ms": None}, "delivery_timeout_ms=None: use a number from 0"),
        ({"metadata_max_age_ms": "x"}, "metadata_max_age_ms='x': use a number from 0"),
        ({"compression_type": None}, "compression_type=None: give a string"),
        ({"compression_type": "zip"}, "zip"),
        ({"on_delivery": 5}, "on_delivery=5: give a function, or None"),
        ({"transactional_id": 5}, "5 is not a name"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_settings_of_a_producer(service: MemoryPenstock, settings: dict[str, Any], says: str) -> None:
    for make in (service.producer, service.async_producer):
        with pytest.raises(InvalidError) as caught:
            make(**settings)
        assert says in str(caught.value)


OPTIONS: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (Consumer, {"group": "g"}, "Consumer has no option 'group': use group_id"),
    (AsyncConsumer, {"fetch_max_byte": 1}, "did you mean fetch_max_bytes?"),
    (Producer, {"compression": "zstd"}, "Producer has no option 'compression': use compression_type"),
    (AsyncProducer, {"bootstrap_servers": "x"}, "give url=, or let the environment tell it"),
    (Producer, {"qqq": 1}, "see help(Producer)"),
    (ShareConsumer, {"group_id": "g", "lock_milis": 1}, "ShareConsumer has no option 'lock_milis'"),
]


@pytest.mark.parametrize(("client", "options", "told"), OPTIONS, ids=lambda each: str(each)[:40])
def test_option_that_there_is_not_is_told_with_a_likely_one(
    client: Callable[..., object], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(told)):
        client(**options)


@pytest.mark.parametrize("kind", ["producer", "async_producer", "admin", "consumer", "async_consumer"])
def test_client_tells_its_service_and_our_words_for_methods_of_kafka(service: MemoryPenstock, kind: str) -> None:
    client = getattr(service, kind)()
    assert re.fullmatch(r"<\w+ of \w+>", repr(client))
    told = "has no attribute 'send_and_wait': wait for what send() returns: await (await producer.send(...))"
    with pytest.raises(AttributeError, match=re.escape(told)):
        client.send_and_wait("orders", b"")
    with pytest.raises(AttributeError, match=r"has no attribute 'sned'$"):
        client.sned("orders", b"")
    assert not hasattr(client, "start")


@pytest.mark.parametrize(
    "fail",
    [
        lambda service: service.admin().describe_topic("nosuch"),
        lambda service: service.producer().send("nosuch", b""),
    ],
    ids=["admin", "producer"],
)
def test_error_of_a_call_shows_few_frames_of_ours(
    service: MemoryPenstock, fail: Callable[[MemoryPenstock], object]
) -> None:
    with pytest.raises(PenstockError) as failed:
        fail(service)
    assert len(failed.traceback) <= 6, [str(each) for each in failed.traceback]
