"""Producers that serialize and consumers that deserialize, with threads and for asyncio, on a service in memory."""

import asyncio
import json
import os
import threading
from functools import partial
from typing import Any

import pytest

from penstock import DeadLetters, TopicPartition, Transformer
from penstock.encryption import Encryption, LocalKeys
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, UnavailableError
from penstock.model import UndecodableBatch
from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde
from penstock.schemas.registry import Schema
from penstock.schemas.serialization import Deserializers, Serializers
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until
from tests.support.schema_registry import SchemaRegistry

FAST: dict[str, Any] = {"fetch_wait_ms": 10, "retry_backoff_ms": 1}
P0 = TopicPartition("orders", 0)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
JSON: dict[str, Any] = {"value_deserializer": JsonSerde(), "key_deserializer": bytes.decode}


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    service.create_topic("orders")


def put(service: MemoryPenstock, *values: bytes | None) -> None:
    with service.producer() as producer:
        for value in values:
            producer.send("orders", value, key=b"k").result()


def take(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    until(lambda: len(records) >= count, step=lambda: records.extend(consumer.poll(timeout_ms=20)))
    return records


def test_consumer_gets_the_objects_that_the_producer_sent(clients: ClientKind, service: MemoryPenstock) -> None:
    with clients.producer(value_serializer=JsonSerde(), key_serializer=str.encode) as producer:
        producer.send("orders", {"id": 1}, key="ada", headers={"type": b"order"}).result()
        producer.send("orders", None, key="ada").result()
        producer.send("orders", [], key=None).result()
    assert [each.value for each in service.records("orders")] == [b'{"id":1}', None, b"[]"]
    with clients.consumer("orders", **JSON, **FAST) as consumer:
        found = [(each.key, each.value, each.headers) for each in take(consumer, 3)]
    assert found == [("ada", {"id": 1}, (("type", b"order"),)), ("ada", None, ()), (None, [], ())]


def test_plain_functions_serialize_as_in_other_clients(clients: ClientKind, service: MemoryPenstock) -> None:
    with clients.producer(value_serializer=lambda value: json.dumps(value)) as producer:
        producer.send("orders", {"id": 1}).result()
    with clients.consumer("orders", value_deserializer=json.loads, consumer_timeout_ms=500, **FAST) as consumer:
        assert [each.value for each in consumer] == [{"id": 1}]


def test_registry_is_asked_once_and_order_holds(
    clients: ClientKind, service: MemoryPenstock, registry: SchemaRegistry
) -> None:
    with clients.producer(value_serializer=AvroSerde(ORDER, registry=ConfluentRegistry(registry.url))) as producer:
        sent = [producer.send("orders", {"id": number}) for number in range(20)]
        for each in sent:
            each.result()
    with clients.consumer(
        "orders", value_deserializer=AvroSerde(registry=ConfluentRegistry(registry.url)), **FAST
    ) as consumer:
        assert [each.value for each in take(consumer, 20)] == [{"id": number} for number in range(20)]
    assert registry.calls == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_key_goes_where_its_bytes_go(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("wide", partitions=7)
    with clients.producer(key_serializer=JsonSerde()) as producer:
        placed = producer.send("wide", b"1", key={"customer": 5}).result()
    with service.producer() as plain:
        assert plain.send("wide", b"1", key=b'{"customer":5}').result().partition == placed.partition


def test_values_are_serialized_and_then_encrypted(clients: ClientKind, service: MemoryPenstock) -> None:
    keys = Encryption(LocalKeys({"2026": os.urandom(32)}))
    with clients.producer(value_serializer=JsonSerde(), key_serializer=str.encode, encryption=keys) as producer:
        producer.send("orders", {"card": "4711" * 20}, key="ada").result()
    [stored] = service.records("orders")
    assert b"4711" not in stored.value
    plain, _ = keys.decrypt(stored.value, key=stored.key, headers=stored.headers)
    assert plain == b'{"card":"' + b"4711" * 20 + b'"}'
    with clients.consumer("orders", encryption=keys, **JSON, **FAST) as consumer:
        [record] = take(consumer, 1)
    assert (record.key, record.value, record.headers) == ("ada", {"card": "4711" * 20}, ())


def test_transaction_serializes(clients: ClientKind, service: MemoryPenstock) -> None:
    with (
        service.producer(transactional_id="t", value_serializer=JsonSerde()) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("orders", {"id": 1})
    with clients.consumer("orders", **JSON, **FAST) as consumer:
        assert take(consumer, 1)[0].value == {"id": 1}


def test_transformer_reads_and_writes_objects(service: MemoryPenstock) -> None:
    service.create_topic("totals")
    put(service, b'{"id": 1}', b'{"id": 2}')
    consumer = service.consumer("orders", group_id="g", delivery="exactly_once", **JSON)
    producer = service.producer(transactional_id="t", value_serializer=JsonSerde())

    def total(record: Any, transaction: Any) -> None:
        transaction.send("totals", {"twice": 2 * record.value["id"]})

    with consumer, producer:
        done = [0]

        def step() -> None:
            done[0] += Transformer(consumer, producer, total).run_once(timeout_ms=20)

        until(lambda: done[0] == 2, step=step)
    assert [each.value for each in service.records("totals")] == [b'{"twice":2}', b'{"twice":4}']


# What cannot be serialized, and what cannot be read.


def test_send_refuses_what_the_serializer_refuses_and_sends_nothing(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    with clients.producer(value_serializer=JsonSerde({"type": "object"}), key_serializer=str.encode) as producer:
        with pytest.raises(InvalidError, match=r"value of a record for 'orders' breaks its schema: .* at /"):
            producer.send("orders", [1])
        with pytest.raises(InvalidError, match=r"value of a record for topic 'orders' cannot be serialized: TypeError"):
            producer.send("orders", {1, 2})
        with pytest.raises(InvalidError, match=r"key of a record for topic 'orders' cannot be serialized.*key: 5"):
            producer.send("orders", {}, key=5)
    assert service.records("orders") == []


def test_consumer_names_the_record_that_it_cannot_read_until_it_seeks(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    put(service, b'{"id": 0}', b'{"id": ', b'{"id": 2}')
    with clients.consumer("orders", **JSON, **FAST) as consumer:
        assert [each.value for each in take(consumer, 1)] == [{"id": 0}]
        for _ in range(2):
            with pytest.raises(
                CorruptError, match=r"partition 0 of topic 'orders': offset 1: the value of 7 bytes"
            ) as (caught):
                take(consumer, 1)
        facts = caught.value.facts
        assert (facts["topic"], facts["partition"], facts["offset"], facts["next_offset"]) == ("orders", 0, 1, 2)
        consumer.seek(P0, facts["next_offset"])
        assert [each.value for each in take(consumer, 1)] == [{"id": 2}]


def test_poison_is_skipped_or_handed_over_as_the_option_says(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"1", b"x", b"3")
    seen: list[UndecodableBatch] = []
    with clients.consumer("orders", on_undecodable=seen.append, **JSON, **FAST) as consumer:
        assert [each.value for each in take(consumer, 2)] == [1, 3]
    assert [(each.offset, each.next_offset) for each in seen] == [(1, 2)]
    with clients.consumer("orders", on_undecodable="skip", **JSON, **FAST) as consumer:
        assert [each.value for each in take(consumer, 2)] == [1, 3]
        assert consumer.skipped_batches() == {P0: 1}


def test_poll_raises_while_the_registry_is_down_and_goes_on_after(
    clients: ClientKind, service: MemoryPenstock, registry: SchemaRegistry
) -> None:
    now_ms = [0]
    shared = ConfluentRegistry(registry.url, now_ms=lambda: now_ms[0])
    registry.register("orders-value", {"schema": json.dumps(ORDER)})
    put(service, b"\0\0\0\0\1\2", b"\0\0\0\0\1\4")
    registry.outage = 503
    with clients.consumer("orders", value_deserializer=AvroSerde(registry=shared), **FAST) as consumer:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="failed for schema 1"):
                take(consumer, 1)
        registry.outage, now_ms[0] = 0, 1_000
        assert [each.value for each in take(consumer, 2)] == [{"id": 1}, {"id": 2}]


def test_dead_letters_need_serializers_on_both_sides(service: MemoryPenstock) -> None:
    service.create_topic("dead")
    with service.consumer("orders", group_id="g", **JSON) as consumer:
        with service.producer(transactional_id="t") as plain, pytest.raises(InvalidError, match="give the producer"):
            DeadLetters(consumer, plain, "dead")
        put(service, b'{"id": 1}')
        with service.producer(
            transactional_id="u", value_serializer=JsonSerde(), key_serializer=str.encode
        ) as producer:
            DeadLetters(consumer, producer, "dead").move(take(consumer, 1)[0])
    assert [(each.key, each.value) for each in service.records("dead")] == [(b"k", b'{"id":1}')]


# Share groups.


def share_group(service: MemoryPenstock) -> None:
    service.create_topic("dead")
    service.create_share_group("workers", ["orders"], {"dead_letter_topic": "dead", "deliveries_max": 3})


def test_share_consumer_reads_objects_and_rejects_what_it_cannot_read(service: MemoryPenstock) -> None:
    share_group(service)
    put(service, b'{"id": 1}', b"x", b'{"id": 3}')
    with service.share_consumer("orders", group_id="workers", **JSON, poll_wait_ms=10) as consumer:
        found = [(each.key, each.value) for each in take(consumer, 2)]
        assert found == [("k", {"id": 1}), ("k", {"id": 3})]
        until(lambda: len(service.records("dead")) == 1, step=lambda: consumer.poll(timeout_ms=10))
    [letter] = service.records("dead")
    assert letter.value == b"x"
    reason = dict(letter.headers)["penstock.dead-letter.reason"]
    assert b"offset 1 of orders[0]: the value of 1 bytes" in (reason or b"")


def test_share_consumer_gives_records_back_while_the_registry_is_down(
    service: MemoryPenstock, registry: SchemaRegistry
) -> None:
    share_group(service)
    put(service, b"\0\0\0\0\1\2")
    registry.outage = 503
    serde = AvroSerde(registry=ConfluentRegistry(registry.url))
    with (
        service.share_consumer("orders", group_id="workers", value_deserializer=serde, poll_wait_ms=10) as consumer,
        pytest.raises(UnavailableError, match=r"offset 0 of orders\[0\]: the registry"),
    ):
        take(consumer, 1)
    assert service.records("dead") == []


def test_share_consumer_orders_by_keys_that_have_no_hash(service: MemoryPenstock) -> None:
    service.create_share_group("ordered", ["orders"], {"ordering": "key"})
    with service.producer(value_serializer=JsonSerde(), key_serializer=JsonSerde()) as producer:
        for number in range(4):
            producer.send("orders", number, key={"customer": number % 2}).result()
    seen: list[int] = []
    with service.share_consumer(
        group_id="ordered", value_deserializer=JsonSerde(), key_deserializer=JsonSerde(), poll_wait_ms=10
    ) as consumer:
        consumer.run(lambda record: seen.append(record.value), concurrency=3, idle_ms=200)
    assert sorted(seen) == [0, 1, 2, 3]
    assert [each for each in seen if each % 2 == 0] == [0, 2]


# The options.


@pytest.mark.parametrize("given", [5, "json", JsonSerde, object()])
def test_serializer_that_is_none_is_refused(clients: ClientKind, given: Any) -> None:
    for made in (
        partial(clients.producer, value_serializer=given),
        partial(clients.consumer, "orders", key_deserializer=given),
    ):
        with pytest.raises(InvalidError, match="give a function of one value, or an object with a method"):
            made()


def test_object_with_the_method_is_told_topic_and_field() -> None:
    class Telling:
        def serialize(self, topic: str, field: str, given: Any) -> str:
            return f"{topic} {field} {given}"

        def deserialize(self, topic: str, field: str, data: bytes) -> str:
            return f"{topic} {field} {data!r}"

    assert Serializers(Telling(), Telling()).serialize("orders", 1, 2) == ("orders value 1", "orders key 2")
    assert Deserializers(None, Telling()).deserialize("orders", b"1", b"2") == (b"1", "orders key b'2'")


def test_outage_that_a_deserializer_tells_is_no_poison(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"1")
    outages = [UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")] * 2

    def read(data: bytes) -> int:
        if outages:
            raise outages.pop()
        return int(data)

    with clients.consumer("orders", value_deserializer=read, on_undecodable="skip", **FAST) as consumer:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="partition 0 of topic 'orders': down"):
                take(consumer, 1)
        assert take(consumer, 1)[0].value == 1


# What is no fault of a record: the registry refuses, or the schema is none.


class Refusing(ConfluentRegistry):
    """A registry that answers each question by the error that it has, while it has one."""

    def __init__(self, error: PenstockError | None = None, schema: Schema | None = None) -> None:
        super().__init__("http://registry", now_ms=lambda: self.now_ms)
        self.now_ms = 0
        self.error = error
        self.found = schema or Schema("AVRO", json.dumps(ORDER))

    def _find_schema(self, schema_id: Any) -> Schema:
        if self.error is not None:
            raise self.error
        return self.found


DENIED = AccessDeniedError(ErrorCode.ACCESS_DENIED, "the registry refuses schema 1: token expired")
UNKNOWN = InvalidError(ErrorCode.INVALID_CONFIG, "the registry does not know schema 1")
FAULTS = [
    (DENIED, None, AccessDeniedError, "token expired"),
    (UNKNOWN, None, InvalidError, "does not know"),
    (None, Schema("AVRO", '{"type": "recordd", "name": "X"}'), InvalidError, "Avro schema is not valid"),
    (None, Schema("AVRO", "{"), InvalidError, "is no JSON"),
    (None, Schema("JSON", "{}"), InvalidError, "read it by JsonSerde"),
]


@pytest.mark.parametrize(("error", "schema", "kind", "why"), FAULTS)
@pytest.mark.parametrize("policy", ["skip", "call"])
def test_registry_that_refuses_makes_no_record_bad(
    clients: ClientKind, service: MemoryPenstock, policy: str, error: Any, schema: Any, kind: Any, why: str
) -> None:
    put(service, b"\0\0\0\0\1\2", b"\0\0\0\0\1\4")
    registry = Refusing(error, schema)
    seen: list[UndecodableBatch] = []
    with clients.consumer(
        "orders",
        group_id="g",
        on_undecodable="skip" if policy == "skip" else seen.append,
        value_deserializer=AvroSerde(registry=registry),
        **FAST,
    ) as consumer:
        for _ in range(2):
            with pytest.raises(kind, match=rf"partition 0 of topic 'orders': offset 0: .*{why}.*seek to 1") as caught:
                take(consumer, 1)
            assert caught.value.facts["offset"] == 0
            assert "next_offset" not in caught.value.facts
        consumer.commit()
        [placed] = service.admin().describe_group("g").partitions
        assert not placed.offset
        registry.error, registry.found, registry.now_ms = None, Schema("AVRO", json.dumps(ORDER)), 10_000
        registry._forget()
        assert [each.value for each in take(consumer, 2)] == [{"id": 1}, {"id": 2}]
        assert consumer.skipped_batches() == {}
    assert seen == []


def test_consumer_goes_on_without_the_record_by_a_seek(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"\0\0\0\0\1\2", b"\0\0\0\0\1\4")
    registry = Refusing(UNKNOWN)
    with clients.consumer("orders", value_deserializer=AvroSerde(registry=registry), **FAST) as consumer:
        with pytest.raises(InvalidError, match="does not know") as caught:
            take(consumer, 1)
        registry.error, registry.now_ms = None, 10_000
        consumer.seek(P0, caught.value.facts["offset"] + 1)
        assert [each.value for each in take(consumer, 1)] == [{"id": 2}]


def test_records_before_come_before_the_error(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"1", b"2")

    def read(data: bytes) -> int:
        if data == b"2":
            raise DENIED
        return int(data)

    with clients.consumer("orders", value_deserializer=read, on_undecodable="skip", **FAST) as consumer:
        assert [each.value for each in take(consumer, 1)] == [1]
        with pytest.raises(AccessDeniedError, match="offset 1: "):
            take(consumer, 1)


def test_transformer_keeps_its_place_when_the_registry_refuses(service: MemoryPenstock) -> None:
    service.create_topic("totals")
    put(service, b"\0\0\0\0\1\2")
    consumer = service.consumer(
        "orders",
        group_id="g",
        delivery="exactly_once",
        on_undecodable="skip",
        value_deserializer=AvroSerde(registry=Refusing(DENIED)),
    )
    producer = service.producer(transactional_id="t", value_serializer=JsonSerde())
    with consumer, producer:
        transformer = Transformer(consumer, producer, lambda record, transaction: None)
        for _ in range(2):
            with pytest.raises(AccessDeniedError, match=r"offset 0: .*token expired"):
                until(lambda: False, step=lambda: transformer.run_once(timeout_ms=20))
    assert not any(each.offset for each in service.admin().describe_group("g").partitions)


@pytest.mark.parametrize(("error", "schema", "kind", "why"), FAULTS)
def test_share_consumer_gives_records_back_when_the_registry_refuses(
    service: MemoryPenstock, error: Any, schema: Any, kind: Any, why: str
) -> None:
    share_group(service)
    put(service, b"\0\0\0\0\1\2")
    serde = AvroSerde(registry=Refusing(error, schema))
    with (
        service.share_consumer("orders", group_id="workers", value_deserializer=serde, poll_wait_ms=10) as consumer,
        pytest.raises(kind, match=rf"offset 0 of orders\[0\]: .*{why}"),
    ):
        take(consumer, 1)
    assert service.records("dead") == []


# A serializer that returns None, and the order of records while a schema is asked for.


def test_serializer_that_returns_none_sends_no_tombstone(clients: ClientKind, service: MemoryPenstock) -> None:
    def forgets(value: Any) -> Any:
        json.dumps(value)

    with clients.producer(value_serializer=forgets) as producer:
        with pytest.raises(InvalidError, match=r"value_serializer=<function .*forgets.*returned None for \{'id': 1\}"):
            producer.send("orders", {"id": 1})
        producer.send("orders", None, key=b"k").result()
    with (
        clients.producer(key_serializer=forgets) as producer,
        pytest.raises(InvalidError, match=r"key_serializer=<function .*forgets.*returned None for 5.*give none"),
    ):
        producer.send("orders", b"1", key=5)
    assert [(each.key, each.value) for each in service.records("orders")] == [(b"k", None)]


def test_transaction_keeps_the_order_of_its_tasks_while_a_schema_is_asked_for(service: MemoryPenstock) -> None:
    asked: list[str] = []
    may_answer = threading.Event()

    class Slow(ConfluentRegistry):
        def _find_header(self, subject: str, schema: Schema, registers: bool) -> bytes:
            asked.append(subject)
            may_answer.wait()
            return b"\0\0\0\0\1"

    serde = JsonSerde({"type": "object"}, registry=Slow("http://registry"))

    async def send_all() -> None:
        async with (
            service.async_producer(transactional_id="t", value_serializer=serde) as producer,
            producer.transaction() as transaction,
        ):
            sent = [asyncio.create_task(transaction.send("orders", {"id": number})) for number in range(5)]
            try:
                for _ in range(100):
                    await asyncio.sleep(0)
            finally:
                may_answer.set()
            await asyncio.gather(*sent)

    asyncio.run(send_all())
    assert asked == ["orders-value"], "the others wait for their turn, and find the schema in memory"
    assert [json.loads((each.value or b"")[5:]) for each in service.records("orders")] == [{"id": n} for n in range(5)]
