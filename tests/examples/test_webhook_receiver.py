"""examples/webhook_receiver.py, over HTTP."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import urllib3

from examples.webhook_receiver import BODY_BYTES_MAX, Orders, make_server
from penstock import webhook
from penstock.webhook import WebhookRecord, WebhookRequest

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
