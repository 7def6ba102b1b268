"""Clients that were idle for minutes, on connections that the other side forgot: a frozen instance, a load balancer.

A relay between clients and the server forgets: what comes on an old connection is swallowed, and no answer comes.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from penstock import Admin, Consumer, HttpTransport, Producer
from penstock.system import wall_clock_ms
from tests.sdk.dev.conftest import Server

_PIECE = 65_536


class ForgetfulRelay:
    """Hands bytes on. `handshakes` counts the connections that clients have opened."""

    def __init__(self, port: int) -> None:
        self.handshakes = 0
        self._behind = port
        self._forgotten: set[socket.socket] = set()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        """From now on no byte of a connection that is open arrives."""
        self._forgotten |= self._open

    def close(self) -> None:
        """Ends all connections."""
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.handshakes += 1
                server = socket.create_connection(("127.0.0.1", self._behind))
                self._open |= {client, server}
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if source not in self._forgotten:
                    target.sendall(piece)


@pytest.fixture
def relay(running: Server) -> Iterator[ForgetfulRelay]:
    relay = ForgetfulRelay(running.port)
    yield relay
    relay.close()


@pytest.mark.parametrize("minutes", [2, 6, 30])
def test_append_a_fetch_and_a_consumer_go_on_with_one_handshake_each(
    running: Server, relay: ForgetfulRelay, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    idle_ms = [0]
    monkeypatch.setattr("penstock.http.connections.wall_clock_ms", lambda: wall_clock_ms() + idle_ms[0])
    configuration = replace(running.configuration(), url=f"http://127.0.0.1:{relay.port}")
    transports = [HttpTransport(configuration, timeout_s=5.0) for _ in range(2)]
    Admin(transport=transports[0]).create_topic("orders")
    with Producer(transport=transports[0]) as producer, Consumer("orders", transport=transports[1]) as consumer:
        producer.send("orders", "before").result()
        assert next(consumer).value == b"before"
        before = relay.handshakes
        relay.forget()
        idle_ms[0] += minutes * 60_000
        producer.send("orders", "after").result()
        assert next(consumer).value == b"after"
        assert relay.handshakes - before <= len(transports)


def test_relay_that_forgets_lets_a_call_on_an_old_connection_fail(running: Server, relay: ForgetfulRelay) -> None:
    """So the test above fails if a client keeps a connection that was idle."""
    transport = HttpTransport(replace(running.configuration(), url=f"http://127.0.0.1:{relay.port}"), timeout_s=0.2)
    assert transport.call("GET", "/v1/topics", {}, {}, b"").status == 200
    relay.forget()
    with pytest.raises(Exception, match="no answer"):
        transport.call("GET", "/v1/topics", {}, {}, b"")
