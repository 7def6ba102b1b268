"""Connections of both kinds: how long they try to connect, and that a request leaves once."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.http.async_connections import AsyncConnections
from penstock.http.connections import Connections
from penstock.http.http_message import Response
from penstock.http.no_answer import NoAnswerError
from penstock.system import monotonic_ms
from tests.support.deadlines import DEADLINE_S

METHODS = ("GET", "HEAD", "PUT", "DELETE", "POST")
NAME = "lambda.test"


class Looped:
    """AsyncConnections that are called from outside their loop."""

    def __init__(self, timeout_s: float, *, connect_timeout_s: float = DEADLINE_S) -> None:
        self._inner = AsyncConnections(timeout_s, connect_timeout_s=connect_timeout_s)
        self._runner = asyncio.Runner()

    def send(self, method: str, url: str, headers: dict[str, str], body: bytes) -> Response:
        return self._runner.run(self._inner.send(method, url, headers, body))

    def close(self) -> None:
        self._runner.run(self._inner.close())
        self._runner.close()


Kind = type[Connections] | type[Looped]


@pytest.fixture(params=[Connections, Looped], ids=["threads", "loop"])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served: list[tuple[str, str, int]] = []  # method, path and port of the client


class _Handler(BaseHTTPRequestHandler):
    """Hangs up on the first request for `/lost`, after it read it. It answers all others."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.served.append((self.command, self.path, self.client_address[1]))
        if self.path == "/lost":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("method", METHODS)
def test_request_on_a_kept_connection_leaves_once_when_the_connection_is_lost(
    kind: Kind, server: _Server, method: str
) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    connections = kind(DEADLINE_S)
    try:
        connections.send("GET", f"{url}/before", {}, b"")
        with pytest.raises(NoAnswerError) as failed:
            connections.send(method, f"{url}/lost", {}, b"x" if method in ("PUT", "POST") else b"")
    finally:
        connections.close()
    assert failed.value.maybe_sent
    before, *lost = server.served
    assert lost == [(method, "/lost", before[2])]  # on the kept connection


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that answers no attempt to connect, as a firewall: its queue of connections is full."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(listening.getsockname())
    yield listening.getsockname()[1]
    for each in (*waiting, listening):
        each.close()


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[int]], None]:
    """Makes the name lead to these ports of this machine, in that order."""
    real = socket.getaddrinfo

    def resolves(ports: list[int]) -> None:
        def found(host: object, *arguments: object, **options: object) -> object:
            if host != NAME:
                return real(host, *arguments, **options)  # type: ignore[arg-type]  # as it was called
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

        monkeypatch.setattr(socket, "getaddrinfo", found)

    return resolves


def test_time_to_connect_is_one_for_all_addresses(
    kind: Kind, silent_port: int, resolves: Callable[[list[int]], None]
) -> None:
    resolves([silent_port] * 40)
    connections = kind(DEADLINE_S, connect_timeout_s=0.2)
    begun_ms = monotonic_ms()
    try:
        with pytest.raises(NoAnswerError) as failed:
            connections.send("POST", f"http://{NAME}/", {}, b"x")
    finally:
        connections.close()
    assert not failed.value.maybe_sent
    assert monotonic_ms() - begun_ms < 4_000  # 40 addresses of 0.2 s each would take 8 s


def test_address_that_answers_is_found_behind_silent_ones(
    kind: Kind, silent_port: int, server: _Server, resolves: Callable[[list[int]], None]
) -> None:
    resolves([silent_port, silent_port, server.server_port])
    connections = kind(DEADLINE_S, connect_timeout_s=3)
    try:
        assert connections.send("POST", f"http://{NAME}/found", {}, b"x").status == 200
    finally:
        connections.close()
    assert [path for _, path, _ in server.served] == ["/found"]


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 64 + ".invalid"])
def test_host_without_an_address_is_certainly_not_reached(kind: Kind, host: str) -> None:
    connections = kind(DEADLINE_S)
    try:
        with pytest.raises(NoAnswerError) as failed:
            connections.send("POST", f"http://{host}/", {}, b"x")
    finally:
        connections.close()
    assert not failed.value.maybe_sent


def test_calls_that_wait_for_their_turn_have_not_left_when_the_client_is_closed(silent_port: int) -> None:
    async def main() -> list[bool]:
        connections = AsyncConnections(DEADLINE_S)
        url = f"http://127.0.0.1:{silent_port}/"
        calls = [asyncio.create_task(connections.send("POST", url, {}, b"x")) for _ in range(120)]
        while connections._session is None or connections._session.calls < len(calls):
            await asyncio.sleep(0)
        await connections.close()
        told = await asyncio.gather(*calls, return_exceptions=True)
        return [isinstance(each, NoAnswerError) and not each.maybe_sent for each in told]

    assert asyncio.run(main())[-20:] == [True] * 20
