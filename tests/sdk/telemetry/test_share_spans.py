import asyncio

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from penstock import Reject, ShareRecord
from penstock.testing import MemoryPenstock
from tests.sdk.telemetry.recorded import Recorded, attributes_of, carried_by, context_of, count_of, links_of, parent_of


@pytest.fixture
def filled(penstock: MemoryPenstock) -> MemoryPenstock:
    penstock.create_topic("orders.dead")
    penstock.create_share_group("workers", "orders", {"start": "earliest", "dead_letter_topic": "orders.dead"})
    with penstock.producer(linger_ms=60_000) as producer:
        producer.send("orders", b"1")
        producer.send("orders", b"2")
    return penstock


def test_poll_has_a_receive_span_and_the_acceptance_a_settle_span(filled: MemoryPenstock, recorded: Recorded) -> None:
    with filled.share_consumer("orders", group_id="workers") as consumer:
        records = consumer.poll(timeout_ms=5_000)
    received, accepted = recorded.span("receive orders"), recorded.span("accept orders")
    assert links_of(received) == [carried_by(each.headers) for each in records]
    assert attributes_of(received)["messaging.consumer.group.name"] == "workers"
    assert accepted.kind is SpanKind.CLIENT
    assert attributes_of(accepted)["messaging.operation.type"] == "settle"
    assert attributes_of(accepted)["messaging.batch.message_count"] == 2


def test_a_handler_runs_in_a_process_span_of_its_records_trace(filled: MemoryPenstock, recorded: Recorded) -> None:
    seen: list[ShareRecord] = []
    producer = filled.producer()
    filled.create_topic("bills")
    consumer = filled.share_consumer("orders", group_id="workers")

    def handle(record: ShareRecord) -> None:
        producer.send("bills", record.value).result()
        seen.append(record)
        if len(seen) == 2:
            consumer.stop()

    consumer.run(handle, concurrency=1)
    processed = recorded.spans("process orders")
    assert [parent_of(each) for each in processed] == [carried_by(each.headers) for each in seen]
    assert [parent_of(each) for each in recorded.spans("create bills")] == [context_of(each) for each in processed]
    assert recorded.spans("receive orders") == []
    consumed = recorded.points("messaging.client.consumed.messages")
    assert sum([point.value for point in consumed]) == 2


def test_a_rejection_is_an_error_of_its_process_span_and_settles(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.share_consumer("orders", group_id="workers")
    seen: list[int] = []

    def handle(record: ShareRecord) -> None:
        seen.append(record.offset)
        if len(seen) == 2:
            consumer.stop()
        raise Reject("bad")

    consumer.run(handle, concurrency=1)
    processed = recorded.spans("process orders")
    assert [each.status.status_code for each in processed] == [StatusCode.ERROR] * 2
    assert [attributes_of(each)["error.type"] for each in processed] == ["Reject"] * 2
    rejected = recorded.spans("reject orders")
    assert count_of(rejected) == 2


def test_the_async_share_consumer_makes_the_same_spans(filled: MemoryPenstock, recorded: Recorded) -> None:
    filled.create_topic("bills")
    seen: list[ShareRecord] = []

    async def work() -> None:
        consumer = filled.async_share_consumer("orders", group_id="workers")
        async with filled.async_producer() as producer:

            async def handle(record: ShareRecord) -> None:
                await (await producer.send("bills", record.value))
                seen.append(record)
                if len(seen) == 2:
                    consumer.stop()

            await consumer.run(handle, concurrency=1)

    asyncio.run(work())
    processed = recorded.spans("process orders")
    assert [parent_of(each) for each in processed] == [carried_by(each.headers) for each in seen]
    assert [parent_of(each) for each in recorded.spans("create bills")] == [context_of(each) for each in processed]
    accepted = recorded.spans("accept orders")
    assert count_of(accepted) == 2


def test_two_handlers_have_traces_of_their_own(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.share_consumer("orders", group_id="workers")
    seen: list[int] = []

    def handle(record: ShareRecord) -> None:
        seen.append(record.offset)
        if len(seen) == 2:
            consumer.stop()

    consumer.run(handle, concurrency=2)
    created = {context_of(each) for each in recorded.spans("create orders")}
    assert {parent_of(each) for each in recorded.spans("process orders")} == created
