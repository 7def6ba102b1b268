import asyncio
from collections.abc import Mapping
from contextlib import suppress

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from penstock import AsyncProducer, Producer, RecordTooLargeError, UnknownTopicError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock, MemoryTransport, ThreadedTransport
from penstock_core.limits import SDK_SPAN_LINKS_MAX
from tests.sdk.telemetry.recorded import (
    Recorded,
    attributes_of,
    carried_by,
    context_of,
    links_of,
    parent_of,
    traceparent_of,
)

GIVEN = traceparent_of(0xABC, 0xDEF)


class Addressed(MemoryTransport):
    """A transport that tells the service's address, as the one over HTTPS does."""

    url = "https://abc.execute-api.eu-west-1.amazonaws.com"

    def __init__(self, inner: MemoryTransport) -> None:
        self._inner = inner

    def wall_clock_ns(self) -> int:
        return self._inner.wall_clock_ns()

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        return self._inner.call(method, path, query, headers, body)


class FailsOnce(Addressed):
    """The first produce request finds the service away."""

    _has_failed = False

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/produce" and not self._has_failed:
            self._has_failed = True
            return Response(503, {}, b'{"error": {"code": "INTERNAL", "message": "not now"}}')
        return super().call(method, path, query, headers, body)


def test_send_puts_the_context_of_its_create_span_into_the_record(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.producer().send("orders", b"1", headers=[("type", b"order")]).result()
    created = recorded.span("create orders")
    (record,) = penstock.records("orders")
    assert carried_by(record.headers) == context_of(created)
    assert record.headers[0] == ("type", b"order")
    assert created.kind is SpanKind.PRODUCER
    assert created.attributes == {
        "messaging.system": "penstock",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
    }


def test_the_create_span_is_a_child_of_the_span_around_send(penstock: MemoryPenstock, recorded: Recorded) -> None:
    producer = penstock.producer()
    with recorded.tracer.start_as_current_span("checkout") as checkout:
        producer.send("orders", b"1").result()
    assert parent_of(recorded.span("create orders")) == context_of(checkout)


def test_each_partition_of_a_request_has_a_send_span_with_links_to_its_records(
    penstock: MemoryPenstock, recorded: Recorded
) -> None:
    with penstock.producer(linger_ms=60_000) as producer:
        for number in range(3):
            producer.send("orders", str(number))
    sent = recorded.span("send orders")
    assert links_of(sent) == [context_of(each) for each in recorded.spans("create orders")]
    assert sent.kind is SpanKind.CLIENT
    assert attributes_of(sent) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 3,
    }


def test_a_context_that_the_application_has_set_is_kept_and_linked(
    penstock: MemoryPenstock, recorded: Recorded
) -> None:
    penstock.producer().send("orders", b"1", headers=[("traceparent", GIVEN)]).result()
    (record,) = penstock.records("orders")
    assert record.headers == (("traceparent", GIVEN),)
    assert recorded.spans("create orders") == []
    assert links_of(recorded.span("send orders")) == [(0xABC, 0xDEF)]


def test_a_header_that_is_no_context_is_kept(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.producer().send("orders", b"1", headers=[("traceparent", b"\xff")]).result()
    (record,) = penstock.records("orders")
    assert record.headers == (("traceparent", b"\xff"),)


def test_without_a_span_for_each_record_it_carries_the_current_context(
    penstock: MemoryPenstock, recorded: Recorded
) -> None:
    producer = penstock.producer(trace_records=False)
    with recorded.tracer.start_as_current_span("checkout") as checkout:
        producer.send("orders", b"1").result()
    producer.send("orders", b"2").result()
    first, second = penstock.records("orders")
    assert carried_by(first.headers) == context_of(checkout)
    assert second.headers == ()
    assert recorded.spans("create orders") == []
    assert [links_of(each) for each in recorded.spans("send orders")] == [[context_of(checkout)], []]


def test_a_send_span_links_to_a_bounded_number_of_records(penstock: MemoryPenstock, recorded: Recorded) -> None:
    with penstock.producer(linger_ms=60_000) as producer:
        for number in range(SDK_SPAN_LINKS_MAX + 10):
            producer.send("orders", str(number))
    sent = recorded.span("send orders")
    assert len(sent.links) == SDK_SPAN_LINKS_MAX
    assert attributes_of(sent)["messaging.batch.message_count"] == SDK_SPAN_LINKS_MAX + 10


def test_a_record_that_is_refused_ends_its_create_span_with_the_error(
    penstock: MemoryPenstock, recorded: Recorded
) -> None:
    producer = penstock.producer()
    with pytest.raises(RecordTooLargeError):
        producer.send("orders", bytes(9 * 2**20))
    with pytest.raises(UnknownTopicError):
        producer.send("absent", b"1")
    refused, unknown = recorded.span("create orders"), recorded.span("create absent")
    assert refused.status.status_code is StatusCode.ERROR
    assert attributes_of(refused)["error.type"] == "RECORD_TOO_LARGE"
    assert attributes_of(unknown)["error.type"] == "UNKNOWN_TOPIC"


def test_headers_of_a_wrong_type_are_refused_as_without_telemetry(penstock: MemoryPenstock, recorded: Recorded) -> None:
    with pytest.raises(Exception, match="headers="):
        penstock.producer().send("orders", b"1", headers=[b"no pair"])  # type: ignore[list-item]


def test_each_try_of_a_request_has_a_send_span_and_a_failed_one_its_error(
    penstock: MemoryPenstock, recorded: Recorded
) -> None:
    transport = FailsOnce(penstock.transport)
    with Producer(transport=transport, retry_backoff_ms=1) as producer:
        producer.send("orders", b"1").result()
    # Another thread may note the first try only after the second one has ended.
    failed, sent = sorted(recorded.spans("send orders"), key=lambda span: span.start_time or 0)
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes_of(failed)["error.type"] == "INTERNAL"
    assert sent.status.status_code is StatusCode.UNSET
    counted = {
        point.attributes.get("error.type"): point.value for point in recorded.points("messaging.client.sent.messages")
    }
    assert counted == {"INTERNAL": 1, None: 1}


def test_metrics_count_records_and_time_requests(penstock: MemoryPenstock, recorded: Recorded) -> None:
    with penstock.producer(linger_ms=60_000) as producer:
        for number in range(3):
            producer.send("orders", str(number))
    (sent,) = recorded.points("messaging.client.sent.messages")
    (duration,) = recorded.points("messaging.client.operation.duration")
    assert sent.value == 3
    assert duration.value == 1
    assert sent.attributes == duration.attributes
    assert sent.attributes == {
        "messaging.system": "penstock",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }


def test_a_transaction_has_send_spans_when_it_commits(penstock: MemoryPenstock, recorded: Recorded) -> None:
    with penstock.producer(transactional_id="t").transaction() as transaction:
        transaction.send("orders", b"1")
        transaction.send("orders", b"2")
        assert recorded.spans("send orders") == []
    assert links_of(recorded.span("send orders")) == [context_of(each) for each in recorded.spans("create orders")]


def test_an_aborted_transaction_has_sent_nothing(penstock: MemoryPenstock, recorded: Recorded) -> None:
    producer = penstock.producer(transactional_id="t")
    with suppress(KeyError), producer.transaction() as transaction:
        transaction.send("orders", b"1")
        raise KeyError
    assert recorded.spans("send orders") == []


async def _send_async(producer: AsyncProducer) -> None:
    async with producer:
        await (await producer.send("orders", b"1"))


async def _commit_async(producer: AsyncProducer) -> None:
    async with producer, producer.transaction() as transaction:
        await transaction.send("orders", b"1")


def test_the_async_producer_makes_the_same_spans(penstock: MemoryPenstock, recorded: Recorded) -> None:
    asyncio.run(_send_async(penstock.async_producer()))
    asyncio.run(_commit_async(penstock.async_producer(transactional_id="t")))
    first, second = penstock.records("orders")
    assert [context_of(each) for each in recorded.spans("create orders")] == [
        carried_by(first.headers),
        carried_by(second.headers),
    ]
    assert [links_of(each) for each in recorded.spans("send orders")] == [
        [carried_by(first.headers)],
        [carried_by(second.headers)],
    ]


def test_the_spans_of_a_client_over_https_tell_the_address(penstock: MemoryPenstock, recorded: Recorded) -> None:
    with Producer(transport=Addressed(penstock.transport)) as producer:
        producer.send("orders", b"1")
    attributes = attributes_of(recorded.span("send orders"))
    assert attributes is not None
    assert attributes["server.address"] == "abc.execute-api.eu-west-1.amazonaws.com"
    assert attributes["server.port"] == 443


def test_async_transport_of_tests_has_no_address(penstock: MemoryPenstock) -> None:
    assert not hasattr(ThreadedTransport(penstock.transport), "url")
