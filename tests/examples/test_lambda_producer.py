"""examples/lambda_producer.py, called as Lambda calls it. tests/end_to_end/test_lambda_producer.py deploys it.

examples/webhook_receiver.py, over HTTP.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import urllib3

from examples import lambda_producer
from examples.webhook_receiver import BODY_BYTES_MAX, Orders, make_server
from penstock import Producer, UnknownTopicError, webhook
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock.webhook import WebhookRecord, WebhookRequest
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


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALL_HANDLED: dict[str, Any] = {"batchItemFailures": []}


class Endpoint:
    """The example, serving, and the database that it writes."""

    def __init__(self, port: int, orders: Orders) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.orders = orders
        self._http = urllib3.PoolManager(retries=False)

    def post(self, request: WebhookRequest) -> tuple[int, dict[str, Any]]:
        return self.post_raw(request.body, request.headers)

    def post_raw(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        answer = self._http.request("POST", self.url, body=body, headers=headers)
        return answer.status, answer.json()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    orders = Orders(str(tmp_path / "orders.db"))
    with make_server(("127.0.0.1", 0), SECRET, orders) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield Endpoint(server.server_port, orders)
        server.shutdown()
        serving.join()


def _records(*values: bytes, base: int = 0) -> list[WebhookRecord]:
    return [WebhookRecord("orders", 0, base + number, 0, None, value, (), 1) for number, value in enumerate(values)]


def _order(order_id: str) -> bytes:
    return json.dumps({"id": order_id, "cents": 250}).encode()


def test_receiver_books_each_order_once_when_a_delivery_comes_again(endpoint: Endpoint) -> None:
    request = webhook.sign(SECRET, _records(_order("a"), _order("b")))
    assert [endpoint.post(request) for _ in range(2)] == [(200, ALL_HANDLED)] * 2

    overlapping = webhook.sign(SECRET, _records(_order("b"), _order("c"), base=1))
    assert endpoint.post(overlapping) == (200, ALL_HANDLED)
    assert endpoint.orders.booked() == [("a", 250), ("b", 250), ("c", 250)]


def test_receiver_names_the_record_that_it_cannot_book_and_books_it_later(endpoint: Endpoint) -> None:
    failing = webhook.sign(SECRET, _records(_order("a"), b"no order", _order("c"), base=7))
    failure = {"itemIdentifier": {"partition": "orders-0", "offset": 8}}
    assert endpoint.post(failing) == (200, {"batchItemFailures": [failure]})
    assert endpoint.orders.booked() == [("a", 250)]

    assert endpoint.post(webhook.sign(SECRET, _records(_order("b"), _order("c"), base=8))) == (200, ALL_HANDLED)
    assert endpoint.orders.booked() == [("a", 250), ("b", 250), ("c", 250)]


def test_receiver_refuses_a_forged_delivery(endpoint: Endpoint) -> None:
    forged = webhook.sign("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", _records(_order("a")))
    status, answer = endpoint.post(forged)
    assert (status, "webhook-signature" in answer["error"]) == (401, True)
    assert endpoint.post_raw(b"{}", {}) == (401, {"error": "a webhook was refused: the header webhook-id is missing"})
    assert endpoint.orders.booked() == []


def test_receiver_refuses_a_body_that_is_too_long_before_it_reads_it(endpoint: Endpoint) -> None:
    assert endpoint.post_raw(b"", {"content-length": str(BODY_BYTES_MAX + 1)})[0] == 413
