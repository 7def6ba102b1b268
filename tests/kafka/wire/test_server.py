import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from penstock.testing import MemoryPenstock
from penstock_kafka.wire import server
from tests.kafka.running_gateway import SETTINGS, RunningGateway, read_answer, request_bytes, running_gateway


@contextmanager
def _gateway(connections_max: int) -> Iterator[RunningGateway]:
    with (
        MemoryPenstock() as service,
        running_gateway(service, replace(SETTINGS, connections_max=connections_max)) as gateway,
    ):
        yield gateway


def _connected(gateway: RunningGateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port))


def _asks(link: socket.socket) -> bool:
    """True if the gateway answers, False if it has ended the connection."""
    try:
        link.sendall(request_bytes(18, 0, 1, b""))
        return read_answer(link, 18, 0)[0] == 1
    except (EOFError, ConnectionError):
        return False


def test_connection_is_refused_when_too_many_are_open() -> None:
    with _gateway(1) as gateway, _connected(gateway) as first:
        assert _asks(first)
        with _connected(gateway) as second:
            assert not _asks(second)


def test_connection_without_a_request_gives_its_place_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENT_MS_MAX", 0)
    with _gateway(2) as gateway, _connected(gateway) as first, _connected(gateway) as silent:
        assert _asks(first)
        with _connected(gateway) as third:
            assert _asks(third)
            assert _asks(first)
            assert silent.recv(1) == b""
