"""Producers that serialize and consumers that deserialize, with threads and for asyncio, on a service in memory."""

import json
import os
from functools import partial
from typing import Any

import pytest

from penstock import DeadLetters, TopicPartition, Transformer
from penstock.encryption import Encryption, LocalKeys
from penstock.errors import CorruptError, InvalidError, UnavailableError
from penstock.model import UndecodableBatch
from penstock.schemas import AvroSerde, ConfluentRegistry, JsonSerde
from penstock.schemas.serialization import Deserializers, Serializers
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
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
