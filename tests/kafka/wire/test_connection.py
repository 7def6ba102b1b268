"""Connections as bytes: order, bounds, and what ends them."""

import socket
import struct

import pytest

from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes
from tests.support.deadlines import until

METADATA_OF_ALL = b"\xff\xff\xff\xff"  # null in version 1


@pytest.fixture
def link(gateway: RunningGateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port))


def test_pipelined_requests_are_answered_in_order(link: socket.socket) -> None:
    link.sendall(b"".join(request_bytes(3, 1, number, METADATA_OF_ALL) for number in range(20)))
    assert [read_answer(link, 3, 1)[0] for _ in range(20)] == list(range(20))
    link.close()


def test_unknown_version_of_api_versions_is_answered_in_version_0(link: socket.socket) -> None:
    link.sendall(request_bytes(18, 99, 5, b"whatever", is_flexible=True))
    correlation_id, answer = read_answer(link, 18, 0)
    assert correlation_id == 5
    assert answer.error_code == 35
    assert {each.api_key for each in answer.api_keys} >= {3, 18}
    link.close()


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 7) + b"1234567",
        struct.pack(">ihh", 2**31 - 1, 3, 1) + bytes(4),
        request_bytes(3, 99, 1, b""),
        request_bytes(999, 0, 1, b""),
        request_bytes(3, 1, 1, b"\x7f\xff\xff\xff"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_connection_ends_when_bytes_are_no_request(link: socket.socket, data: bytes) -> None:
    link.sendall(data)
    assert link.recv(1) == b""
    link.close()


def test_answers_come_before_the_end_when_the_gateway_stops(gateway: RunningGateway, link: socket.socket) -> None:
    link.sendall(request_bytes(3, 1, 1, METADATA_OF_ALL))
    assert read_answer(link, 3, 1)[0] == 1
    gateway.close()
    assert link.recv(1) == b""
    link.close()


def test_bytes_are_given_back_when_clients_break_off(gateway: RunningGateway) -> None:
    produce = struct.pack(">hhih", -1, 1, 1_000, 0)[:8] + struct.pack(">i", 0)  # of nothing, version 3
    for _ in range(10):
        link = socket.create_connection(("127.0.0.1", gateway.port))
        link.sendall(b"".join(request_bytes(0, 3, number, produce) for number in range(60)))
        link.sendall(request_bytes(3, 1, 99, METADATA_OF_ALL))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()  # by a reset
    lines = "penstock_kafka_request_held_bytes 0\n", "penstock_kafka_connections 0\n"
    until(lambda: all(each in gateway.gateway.metrics.text() for each in lines), shown=gateway.gateway.metrics.text)
