"""Clients that stop in the middle of a request or of an answer hold up no other client."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from os import urandom

import pytest

from penstock.testing import MemoryPenstock
from penstock_core.limits import KAFKA_PRODUCE_BYTES_MAX, KAFKA_REQUEST_BYTES_MAX, KAFKA_SMALL_BYTES_MAX
from penstock_core.records.codec import BatchBuilder
from penstock_kafka import gateway as gateways
from penstock_kafka.fetch import reader
from penstock_kafka.wire import budget
from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes, running_gateway
from tests.support.deadlines import until

STOPPED = 20
LARGE = 2_900_000  # more than the kernel keeps for a client that does not read
BUDGET = 4 * LARGE


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Budgets that few clients fill. Clients that stop are ended at once, or never if a test says so."""
    monkeypatch.setattr(gateways, "KAFKA_REQUESTS_BYTES_MAX", BUDGET)
    monkeypatch.setattr(reader, "KAFKA_FETCHES_BYTES_MAX", BUDGET)
    monkeypatch.setattr(budget, "KAFKA_STALL_MS_MAX", 0)
    return monkeypatch


@pytest.fixture
def gateway(stall: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    with MemoryPenstock() as service:
        service.create_topic("orders")
        service.create_topic("large", config={"max_batch_bytes": LARGE + 100_000})
        with running_gateway(service) as running:
            yield running


def _link(gateway: RunningGateway, links: ExitStack) -> socket.socket:
    link = links.enter_context(socket.socket())
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    link.connect(("127.0.0.1", gateway.port))
    return link


def _produced(topic: bytes, value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, value)
    batch = bytes(builder.build())
    header = struct.pack(f">hhiIH{len(topic)}sIiI", -1, 1, 1_000, 1, len(topic), topic, 1, 0, len(batch))
    return request_bytes(0, 3, 7, header + batch)


def _is_produced(gateway: RunningGateway, topic: bytes, value: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(_produced(topic, value))
        (answer,) = read_answer(link, 0, 3)[1].responses
    return bool(answer.partition_responses[0].error_code == 0)


def _fetch(topic: bytes) -> bytes:
    place = struct.pack(f">IH{len(topic)}sIiqi", 1, len(topic), topic, 1, 0, 0, 50_000_000)
    return request_bytes(1, 4, 7, struct.pack(">iiiib", -1, 1_000, 1, 50_000_000, 0) + place)


def _held(gateway: RunningGateway, name: str) -> int:
    lines = gateway.gateway.metrics.text().splitlines()
    return next(int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"penstock_kafka_{name} "))


def _send_halves(gateway: RunningGateway, links: ExitStack) -> None:
    """Requests of 8 MiB, of which as much comes as the gateway reads."""
    head = struct.pack(">ihhi", KAFKA_PRODUCE_BYTES_MAX, 0, 3, 1)
    for _ in range(STOPPED):
        link = _link(gateway, links)
        link.setblocking(False)
        link.send(head + bytes(KAFKA_PRODUCE_BYTES_MAX // 2))


def test_small_requests_pass_while_halves_of_large_ones_fill_the_budget(
    gateway: RunningGateway, stall: pytest.MonkeyPatch
) -> None:
    stall.setattr(budget, "KAFKA_STALL_MS_MAX", 10**9)
    with ExitStack() as links:
        for _ in range(STOPPED):
            link = _link(gateway, links)
            link.sendall(struct.pack(">ihhi", KAFKA_PRODUCE_BYTES_MAX, 0, 3, 1))
        until(lambda: _held(gateway, "connections") == STOPPED)
        assert _held(gateway, "request_held_bytes") == 0, "only what came counts"
        assert _is_produced(gateway, b"orders", b"small")


def test_large_request_comes_through_when_halves_of_others_fill_the_budget(gateway: RunningGateway) -> None:
    with ExitStack() as links:
        _send_halves(gateway, links)
        until(lambda: _held(gateway, "request_held_bytes") > BUDGET // 4)
        assert _is_produced(gateway, b"large", urandom(LARGE))
    assert _is_produced(gateway, b"orders", b"small")


def test_large_request_comes_through_when_fetches_that_rest_fill_the_budget(gateway: RunningGateway) -> None:
    """They wait ten minutes for a record. Behind the request are bytes that Kafka ignores."""
    rest = struct.pack(">iiiibiH6siIqi", -1, 600_000, 1, 1_000, 0, 1, 6, b"orders", 1, 0, 0, 1_000)
    request = request_bytes(1, 4, 7, rest + bytes(KAFKA_REQUEST_BYTES_MAX - 200))
    fitting = BUDGET // len(request)
    with ExitStack() as links:
        for _ in range(fitting):
            _link(gateway, links).sendall(request)
        until(lambda: _held(gateway, "request_held_bytes") >= fitting * (len(request) - 100))
        _link(gateway, links).sendall(request)  # this one goes beyond
        assert _is_produced(gateway, b"large", urandom(KAFKA_REQUEST_BYTES_MAX // 2))


def test_fetch_is_answered_when_clients_that_do_not_read_fill_the_budget(gateway: RunningGateway) -> None:
    assert _is_produced(gateway, b"large", urandom(LARGE))
    assert _is_produced(gateway, b"orders", b"small")
    with ExitStack() as links:
        for _ in range(STOPPED):
            _link(gateway, links).sendall(_fetch(b"large"))
        until(lambda: _held(gateway, "stalled_connections_total") > 0)
        with socket.create_connection(("127.0.0.1", gateway.port)) as link:
            link.sendall(_fetch(b"orders"))
            (answer,) = read_answer(link, 1, 4)[1].responses
        assert answer.partitions[0].high_watermark == 1
        assert len(answer.partitions[0].records) < KAFKA_SMALL_BYTES_MAX
