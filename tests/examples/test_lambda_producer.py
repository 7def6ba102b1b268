"""examples/lambda_producer.py, called as Lambda calls it. tests/end_to_end/test_lambda_producer.py deploys it."""

import threading
from typing import Any

import pytest

from examples import lambda_producer
from penstock import Producer, UnknownTopicError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer

ALL_STORED: dict[str, Any] = {"batchItemFailures": []}


def _event(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": f"id-{body}", "body": body} for body in bodies]}


def _stored(penstock: MemoryPenstock) -> list[tuple[bytes | None, bytes | None]]:
    """Value and message id of each record."""
    return [(record.value, dict(record.headers)["message-id"]) for record in penstock.records("orders")]


def test_handler_stores_each_message_before_it_answers(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders", partitions=1)

    producer = penstock.producer(linger_ms=60_000)
    assert lambda_producer.handler(_event("a", "b"), None, producer) == ALL_STORED

    assert _stored(penstock) == [(b"a", b"id-a"), (b"b", b"id-b")]


def test_handler_names_the_messages_that_are_not_stored(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders", partitions=1)
    transport = FaultyTransport(penstock.transport)
    transport.faults["/v1/produce"] = [answer(403, b'{"message": "Forbidden"}')]

    with Producer(transport=transport) as producer:
        refused = lambda_producer.handler(_event("a", "b"), None, producer)
        assert refused == {"batchItemFailures": [{"itemIdentifier": "id-a"}, {"itemIdentifier": "id-b"}]}
        assert lambda_producer.handler(_event("a", "b"), None, producer) == ALL_STORED

    assert _stored(penstock) == [(b"a", b"id-a"), (b"b", b"id-b")]


def test_message_is_stored_once_when_an_answer_is_lost(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders", partitions=1)
    transport = FaultyTransport(penstock.transport)
    transport.faults["/v1/produce"] = [lost_answer]

    with Producer(transport=transport) as producer:
        assert lambda_producer.handler(_event("a"), None, producer) == ALL_STORED

    assert _stored(penstock) == [(b"a", b"id-a")]


def test_handler_raises_when_a_request_takes_too_long(
    penstock: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock.create_topic("orders", partitions=1)
    monkeypatch.setattr(lambda_producer, "FLUSH_S", 0.01)
    is_over = threading.Event()

    def slow(send: Any) -> Response:
        is_over.wait()
        sent: Response = send()
        return sent

    transport = FaultyTransport(penstock.transport)
    transport.faults["/v1/produce"] = [slow]
    with Producer(transport=transport) as producer:
        with pytest.raises(TimeoutError):
            lambda_producer.handler(_event("a"), None, producer)
        is_over.set()


def test_handler_raises_when_the_topic_is_missing(penstock: MemoryPenstock) -> None:
    with pytest.raises(UnknownTopicError):
        lambda_producer.handler(_event("a"), None, penstock.producer())


def test_handler_shares_one_producer_among_its_calls(penstock: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    penstock.create_topic("orders", partitions=1)
    made: list[dict[str, Any]] = []

    def make(**settings: Any) -> Producer:
        made.append(settings)
        return penstock.producer(**settings)

    monkeypatch.setattr(lambda_producer, "Producer", make)
    lambda_producer.shared_producer.cache_clear()
    for body in ("a", "b", "c"):
        assert lambda_producer.handler(_event(body), None) == ALL_STORED
    lambda_producer.shared_producer.cache_clear()

    assert [value for value, _ in _stored(penstock)] == [b"a", b"b", b"c"]
    assert made == [{"delivery_timeout_ms": 6_000, "max_block_ms": 6_000}]
