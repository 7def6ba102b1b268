"""Connections against servers on this machine: reuse, connections that end, and what each failure says."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from penstock_core.limits import STORAGE_IDLE_CONNECTION_MS_MAX
from penstock_service.adapters.direct.connections import Connections
from penstock_service.adapters.dynamodb.driver_errors import NeverSentError, NoAnswerError
from tests.support.deadlines import DEADLINE_S

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: value\r\n\r\nok"
CLOSING = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


class Server:
    """Serves the answers of each connection in turn, and keeps the requests."""

    def __init__(self, *connections: list[bytes], context: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._connections = connections
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self.accepted = 0
        self.has_ended = [threading.Event() for _ in connections]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _serve(self) -> None:
        for answers, has_ended in zip(self._connections, self.has_ended, strict=True):
            connection, _ = self._listener.accept()
            self.accepted += 1
            try:
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)
                for answer in answers:
                    self.requests.append(_read_request(connection))
                    connection.sendall(answer)
            except OSError:
                pass
            finally:
                connection.close()
                has_ended.set()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(DEADLINE_S)


def _read_request(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content:
        if not (part := connection.recv(65_536)):
            raise ConnectionError
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*connections: list[bytes], context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(*connections, context=context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class _TwoClocks:
    """A Clock whose two hands a test sets by itself."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000_000, 1_000.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError("a connection does not sleep")


def _by_the_wall_clock(clock: _TwoClocks) -> None:
    clock.wall += STORAGE_IDLE_CONNECTION_MS_MAX + 1


def _by_the_monotonic_clock(clock: _TwoClocks) -> None:
    clock.monotonic += STORAGE_IDLE_CONNECTION_MS_MAX + 1


def _by_the_other_after_a_step_back(clock: _TwoClocks) -> None:
    clock.wall -= 10 * STORAGE_IDLE_CONNECTION_MS_MAX
    _by_the_monotonic_clock(clock)


@contextmanager
def _forgetful_server() -> Iterator[tuple[int, Callable[[], None]]]:
    """A server of many connections, and what makes it forget them: no FIN comes, and the next byte meets a reset."""
    is_forgotten = threading.Event()
    arrived = threading.Barrier(3)

    def serve_one(connection: socket.socket, is_old: bool) -> None:
        with connection:
            _read_request(connection)
            if is_old:
                arrived.wait(DEADLINE_S)  # so that each call has a connection of its own
            connection.sendall(OK)
            if is_old and connection.recv(1) and is_forgotten.is_set():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve_one, args=(connection, not is_forgotten.is_set()), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], is_forgotten.set


@contextmanager
def _to(server: Server, scheme: str = "http", read_timeout_s: float = DEADLINE_S) -> Iterator[Connections]:
    host = "127.0.0.1" if scheme == "http" else "localhost"
    connections = Connections(f"{scheme}://{host}:{server.port}", read_timeout_s=read_timeout_s)
    yield connections
    connections.close()


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_request_leaves_whole_and_its_answer_comes_back(serve: Callable[..., Server], size: int) -> None:
    server = serve([OK])
    with _to(server) as connections:
        answer = connections.send("PUT", "/a/b?c", {"x-own": "1"}, b"x" * size)
    assert (answer.status, answer.headers["x-name"], answer.body) == (200, "value", b"ok")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"PUT /a/b?c HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}".encode(),
        b"x-own: 1",
        f"Content-Length: {size}".encode(),
    ]
    assert body == b"x" * size


def test_connection_serves_one_call_after_the_other(serve: Callable[..., Server]) -> None:
    server = serve([OK, OK, OK])
    with _to(server) as connections:
        for _ in range(3):
            connections.send("GET", "/", {}, b"")
    assert (server.accepted, len(server.requests)) == (1, 3)


@pytest.mark.parametrize("answer", [OK, CLOSING])
def test_connection_that_the_service_has_closed_is_not_used_again(serve: Callable[..., Server], answer: bytes) -> None:
    server = serve([answer], [OK])
    with _to(server) as connections:
        connections.send("GET", "/", {}, b"")
        assert server.has_ended[0].wait(DEADLINE_S)
        assert connections.send("GET", "/", {}, b"").body == b"ok"
    assert server.accepted == 2


@pytest.mark.parametrize("slept", [_by_the_wall_clock, _by_the_monotonic_clock, _by_the_other_after_a_step_back])
def test_connection_that_was_idle_for_long_by_any_clock_is_not_used_again(
    serve: Callable[..., Server], slept: Callable[[_TwoClocks], None]
) -> None:
    server, clock = serve([OK], [OK]), _TwoClocks()
    connections = Connections(f"http://127.0.0.1:{server.port}", read_timeout_s=DEADLINE_S, clock=clock)
    connections.send("GET", "/", {}, b"")
    slept(clock)
    assert connections.send("GET", "/", {}, b"").body == b"ok"
    connections.close()
    assert server.accepted == 2


def test_connection_that_fails_after_it_was_idle_ends_the_others_that_are_idle() -> None:
    with _forgetful_server() as (port, forget):
        connections = Connections(f"http://127.0.0.1:{port}", read_timeout_s=DEADLINE_S)
        barrier = threading.Barrier(3)

        def call() -> None:
            barrier.wait(DEADLINE_S)
            connections.send("GET", "/", {}, b"")

        threads = [threading.Thread(target=call) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE_S)
        forget()
        with pytest.raises(NoAnswerError, match="closed before"):
            connections.send("GET", "/", {}, b"")
        assert connections.send("GET", "/", {}, b"").body == b"ok"
        connections.close()


def test_answer_that_trickles_ends_at_three_read_time_outs() -> None:
    clock = _TwoClocks()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = Connections(f"http://127.0.0.1:{listener.getsockname()[1]}", read_timeout_s=1_000, clock=clock)

        def trickle() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.recv(65_536)
                for part in (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", *[b"x"] * 99):
                    clock.monotonic += 999_000
                    peer.sendall(part)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        with pytest.raises(NoAnswerError, match="Read timeout"):
            connections.send("GET", "/", {}, b"")
        thread.join(DEADLINE_S)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", b"nonsense\r\n\r\n"])
def test_answer_that_breaks_off_may_have_been_acted_on(serve: Callable[..., Server], answer: bytes) -> None:
    with _to(serve([answer])) as connections, pytest.raises(NoAnswerError, match="closed before"):
        connections.send("GET", "/", {}, b"")


def test_answer_that_does_not_come_may_have_been_acted_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connections = Connections(f"http://127.0.0.1:{silent.getsockname()[1]}", read_timeout_s=0.05)
        with pytest.raises(NoAnswerError, match="Read timeout"):
            connections.send("GET", "/", {}, b"")


def test_service_that_is_not_there_has_got_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NeverSentError, match="Could not connect"):
        Connections(f"http://127.0.0.1:{port}").send("GET", "/", {}, b"")


def test_service_that_takes_no_connection_in_time_has_got_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_in_vain(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", wait_in_vain)
    with pytest.raises(NeverSentError, match="Connect timeout"):
        Connections("http://127.0.0.1:1").send("GET", "/", {}, b"")


def test_header_with_a_line_break_is_refused(serve: Callable[..., Server]) -> None:
    with pytest.raises(ValueError, match="line break"):
        Connections("http://127.0.0.1:1").send("GET", "/", {"x": "a\r\nb: c"}, b"")


@pytest.mark.parametrize("origin", ["127.0.0.1:80", "ftp://host", "https://"])
def test_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="no origin"):
        Connections(origin)


def test_tls_takes_the_authorities_of_the_environment_and_no_others(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    server = serve([], [OK], context=context)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with _to(server, "https") as connections, pytest.raises(NeverSentError, match="Could not connect"):
        connections.send("GET", "/", {}, b"")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    with _to(server, "https") as connections:
        assert connections.send("GET", "/", {}, b"x" * 100_000).body == b"ok"
