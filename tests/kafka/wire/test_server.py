import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import trustme

from penstock.testing import MemoryPenstock
from penstock_kafka.gateway import Protection
from penstock_kafka.wire import server
from tests.kafka.running_gateway import SETTINGS, RunningGateway, read_answer, request_bytes, running_gateway


@contextmanager
def _gateway(connections_max: int, protection: Protection | None = None) -> Iterator[RunningGateway]:
    settings = replace(SETTINGS, connections_max=connections_max)
    with MemoryPenstock() as service, running_gateway(service, settings, protection=protection) as gateway:
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


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> Protection:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return Protection(tls=context)


def _secured(gateway: RunningGateway, authority: trustme.CA) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context.wrap_socket(_connected(gateway), server_hostname="127.0.0.1")


def test_connection_counts_before_its_tls_handshake(tls: Protection, authority: trustme.CA) -> None:
    with _gateway(2, tls) as gateway, _secured(gateway, authority) as first, _connected(gateway):
        assert _asks(first)
        with _connected(gateway) as third, contextlib.suppress(ConnectionError):
            assert third.recv(1) == b""
        assert _asks(first)
        assert "\npenstock_kafka_refused_connections_total 1\n" in gateway.gateway.metrics.text()


def test_handshake_that_does_not_go_on_gives_its_place_to_another_connection(
    tls: Protection, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SILENT_MS_MAX", 0)
    with _gateway(2, tls) as gateway, _secured(gateway, authority) as first, _connected(gateway) as silent:
        assert _asks(first)
        with _secured(gateway, authority) as third:
            assert _asks(third)
            assert _asks(first)
            assert "\npenstock_kafka_stalled_connections_total 1\n" in gateway.gateway.metrics.text()
            with contextlib.suppress(ConnectionError):
                assert silent.recv(1) == b""


def test_client_that_speaks_no_tls_is_let_go(tls: Protection, authority: trustme.CA) -> None:
    with _gateway(1, tls) as gateway:
        with _connected(gateway) as plain:
            assert not _asks(plain)
        with _secured(gateway, authority) as link:
            assert _asks(link)
