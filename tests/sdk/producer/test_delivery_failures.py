"""Deliveries that fail: what is tried again, what is given up, and what the application is told. The exit of the
interpreter: it delivers every record, and no thread holds it up.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from penstock.errors import (
    DeliveryTimeoutError,
)
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer, lost_request
from tests.support.child_process import bare_environment, child_process
from tests.support.deadlines import DEADLINE_S

PRODUCE = "/v1/produce"
FORGOTTEN = """
import json
from penstock import Consumer, Producer, Response
from penstock_core.records import frame

class Service:
    def call(self, method, path, query, headers, body):
        if path == "/v1/produce":
            header, data = frame.decode(body)
            print("produced", len(header["batches"]), b"forgotten" in bytes(data))
            answer = {"results": [{"topic": "t", "partition": 0, "base_offset": 0, "next_offset": 1}]}
        elif path == "/v1/fetch":
            return Response(503, {}, b"{}")
        elif path.endswith("/offsets"):
            answer = {"offsets": [{"partition": 0, "offset": 0, "timestamp_ms": None}]}
        else:
            answer = {"name": "t", "topic_id": "x", "partitions": 1, "config": {}, "created_at_ms": 0, "offsets": []}
            answer["writable_partitions"] = 1
        return Response(200, {}, json.dumps(answer).encode())

    def close(self):
        pass

producer = Producer(transport=Service(), linger_ms=600_000, compression_type="none")
consumer = Consumer("t", transport=Service(), retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
consumer.poll(timeout_ms=0)
producer.send("t", b"sent and forgotten")
"""


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    return service.create_topic("orders", partitions=3).name


def _values(service: MemoryPenstock, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in service.records(topic)]


@pytest.mark.parametrize("fault", [lost_request, answer(503, b"{}"), answer(429, b"{}", {"Retry-After": "0"})])
def test_passing_failure_is_tried_again(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str, fault: Any
) -> None:
    faulty.faults[PRODUCE] = [fault, fault]
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        sent = [producer.send(orders, b"%d" % number, partition=0) for number in range(10)]
    assert [each.result(DEADLINE_S).offset for each in sent] == list(range(10))
    assert _values(service) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(("enable_idempotence", "copies"), [(True, 1), (False, 2)])
def test_lost_answer_is_tried_again_and_duplicates_only_without_idempotence(
    clients: ClientKind,
    service: MemoryPenstock,
    faulty: FaultyTransport,
    orders: str,
    enable_idempotence: bool,
    copies: int,
) -> None:
    faulty.faults[PRODUCE] = [lost_answer]
    with clients.producer(transport=faulty, retry_backoff_ms=1, enable_idempotence=enable_idempotence) as producer:
        sent = producer.send(orders, b"v", partition=0)
    assert sent.result(DEADLINE_S).offset == copies - 1
    assert _values(service) == [b"v"] * copies


def test_producer_goes_on_when_its_topic_was_made_anew(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        producer.send(orders, b"before", partition=0).result(DEADLINE_S)
        with service.admin() as admin:
            admin.delete_topic(orders)
        service.create_topic(orders)
        sent = producer.send(orders, b"after", partition=0)
        assert sent.result(DEADLINE_S).offset == 0
    assert _values(service) == [b"after"]


def test_acks_none_is_not_tried_again(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    faulty.faults[PRODUCE] = [lost_answer]
    with clients.producer(transport=faulty, acks="none") as producer:
        sent = producer.send(orders, b"v", partition=0)
    assert sent.exception(DEADLINE_S) is not None
    assert _values(service) == [b"v"]


def test_delivery_is_given_up_after_its_time(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    faulty.faults[PRODUCE] = [lost_request] * 1_000
    with clients.producer(transport=faulty, delivery_timeout_ms=50, retry_backoff_ms=5) as producer:
        sent = producer.send(orders, b"v")
        error = sent.exception(DEADLINE_S)
    assert isinstance(error, DeliveryTimeoutError)
    assert not error.maybe_applied


def test_error_of_one_partition_leaves_its_neighbours_alone(
    clients: ClientKind, faulty: FaultyTransport, orders: str
) -> None:
    def refuse_partition_1(send: Any) -> Response:
        answered = send()
        results = json.loads(answered.body)["results"]
        for result in results:
            if result["partition"] == 1:
                result["error"] = {"code": "CORRUPT_BATCH", "message": "torn"}
        return Response(200, {}, json.dumps({"results": results}).encode())

    faulty.faults[PRODUCE] = [refuse_partition_1]
    with clients.producer(transport=faulty, linger_ms=60_000) as producer:
        sent = [producer.send(orders, b"v", partition=partition) for partition in range(3)]
    assert [each.exception(DEADLINE_S) is None for each in sent] == [True, False, True]


def test_denied_request_fails_with_advice_at_once(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    faulty.faults[PRODUCE] = [answer(403, b'{"message":"Forbidden"}')]
    with clients.producer(transport=faulty) as producer:
        error = producer.send(orders, b"v").exception(DEADLINE_S)
    assert isinstance(error, PenstockError)
    assert error.code.name == "ACCESS_DENIED"
    assert faulty.count(PRODUCE) == 1


def test_answer_that_is_not_penstocks_does_not_hang(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    faulty.faults[PRODUCE] = [answer(200, b"<html>")] * 1_000
    with clients.producer(transport=faulty, delivery_timeout_ms=20, retry_backoff_ms=1) as producer:
        assert isinstance(producer.send(orders, b"v").exception(DEADLINE_S), DeliveryTimeoutError)


def test_defect_in_a_transport_does_not_hang(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    def defect(_: Any) -> Response:
        raise ZeroDivisionError

    faulty.faults[PRODUCE] = [defect] * 1_000
    with clients.producer(transport=faulty, acks="none") as producer:
        assert producer.send(orders, b"v").exception(DEADLINE_S) is not None


@pytest.mark.slow
def test_interpreter_exit_delivers_all_records_and_does_not_hang() -> None:
    with child_process(
        [sys.executable, "-c", FORGOTTEN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        written, errors = process.communicate()
    assert (process.returncode, written) == (0, b"produced 1 True\n")
    assert b"Traceback" not in errors
