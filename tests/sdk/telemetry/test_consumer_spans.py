import asyncio

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from penstock import LeaseLostError, TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.telemetry.recorded import Recorded, attributes_of, carried_by, context_of, count_of, links_of, parent_of

GROUP = {"group_id": "billing", "auto_offset_reset": "earliest"}


@pytest.fixture
def filled(penstock: MemoryPenstock) -> MemoryPenstock:
    with penstock.producer(linger_ms=60_000) as producer:
        for number in range(3):
            producer.send("orders", str(number))
    return penstock


def test_poll_has_a_receive_span_with_links_to_its_records(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", **GROUP)
    records = consumer.poll(timeout_ms=5_000)
    received = recorded.span("receive orders")
    assert links_of(received) == [carried_by(each.headers) for each in records]
    assert received.kind is SpanKind.CLIENT
    assert attributes_of(received) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "billing",
        "messaging.batch.message_count": 3,
    }
    (consumed,) = recorded.points("messaging.client.consumed.messages")
    assert consumed.value == 3


def test_the_receive_span_is_a_child_of_the_span_around_poll(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", **GROUP)
    with recorded.tracer.start_as_current_span("job") as job:
        assert consumer.poll(timeout_ms=5_000)
    assert parent_of(recorded.span("receive orders")) == context_of(job)


def test_a_poll_without_records_leaves_no_span(penstock: MemoryPenstock, recorded: Recorded) -> None:
    assert penstock.consumer("orders", **GROUP).poll(timeout_ms=1) == []
    assert recorded.spans("receive orders") == []


def test_iteration_reports_only_the_records_that_the_application_has_got(
    filled: MemoryPenstock, recorded: Recorded
) -> None:
    consumer = filled.consumer("orders", **GROUP)
    first, second = next(consumer), next(consumer)
    assert recorded.spans("receive orders") == []
    consumer.close()
    received = recorded.span("receive orders")
    assert links_of(received) == [carried_by(first.headers), carried_by(second.headers)]
    assert attributes_of(received)["messaging.batch.message_count"] == 2


def test_a_poll_after_iteration_reports_each_record_once(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", **GROUP)
    next(consumer)
    assert len(consumer.poll()) == 2
    consumer.close()
    counts = [count_of([each]) for each in recorded.spans("receive orders")]
    assert counts == [1, 2]


def test_a_seek_reports_what_was_returned_before(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", **GROUP)
    next(consumer)
    consumer.seek(TopicPartition("orders", 0), 0)
    assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
    consumer.close()
    counts = [count_of([each]) for each in recorded.spans("receive orders")]
    assert counts == [1, 3]


def test_a_commit_has_a_settle_span(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", enable_auto_commit=False, **GROUP)
    consumer.poll(timeout_ms=5_000)
    consumer.commit()
    settled = recorded.span("commit orders")
    assert settled.kind is SpanKind.CLIENT
    assert attributes_of(settled) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "billing",
    }


def test_a_commit_that_is_refused_ends_its_span_with_the_error(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", enable_auto_commit=False, **GROUP)
    consumer.poll(timeout_ms=5_000)
    filled.create_topic("others")
    with pytest.raises(LeaseLostError):
        consumer.commit({TopicPartition("others", 0): 0})
    settled = recorded.span("commit others")
    assert settled.status.status_code is StatusCode.ERROR
    assert attributes_of(settled)["error.type"] == "LEASE_FENCED"


def test_processing_goes_on_with_the_trace_of_the_record(filled: MemoryPenstock, recorded: Recorded) -> None:
    filled.create_topic("bills")
    consumer, producer = filled.consumer("orders", **GROUP), filled.producer()
    record = next(consumer)
    with consumer.processing(record):
        producer.send("bills", b"1").result()
    processed = recorded.span("process orders")
    assert processed.kind is SpanKind.CONSUMER
    assert parent_of(processed) == carried_by(record.headers)
    assert links_of(processed) == [carried_by(record.headers)]
    assert parent_of(recorded.span("create bills")) == context_of(processed)
    assert attributes_of(processed)["messaging.operation.type"] == "process"
    assert attributes_of(processed)["messaging.message.id"] == "0"
    (duration,) = recorded.points("messaging.process.duration")
    assert duration.value == 1


def test_processing_inside_a_span_is_its_child_and_links_to_the_record(
    filled: MemoryPenstock, recorded: Recorded
) -> None:
    consumer = filled.consumer("orders", **GROUP)
    record = next(consumer)
    with recorded.tracer.start_as_current_span("job") as job, consumer.processing(record):
        pass
    processed = recorded.span("process orders")
    assert parent_of(processed) == context_of(job)
    assert links_of(processed) == [carried_by(record.headers)]


def test_processing_that_raises_ends_its_span_with_the_error(filled: MemoryPenstock, recorded: Recorded) -> None:
    consumer = filled.consumer("orders", **GROUP)
    with pytest.raises(ValueError, match="no"), consumer.processing(next(consumer)):
        raise ValueError("no")
    processed = recorded.span("process orders")
    assert processed.status.status_code is StatusCode.ERROR
    assert attributes_of(processed)["error.type"] == "ValueError"


def test_the_async_consumer_makes_the_same_spans(filled: MemoryPenstock, recorded: Recorded) -> None:
    async def read() -> None:
        async with filled.async_consumer("orders", **GROUP) as consumer:
            async for record in consumer:
                with consumer.processing(record):
                    break

    asyncio.run(read())
    received = recorded.span("receive orders")
    assert attributes_of(received)["messaging.batch.message_count"] == 1
    assert parent_of(recorded.span("process orders")) == links_of(received)[0]
    assert recorded.span("commit orders")
