import asyncio
import contextlib
import hashlib
import hmac
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.credentials import Credentials

from penstock.configuration import Configuration
from penstock.errors import ConnectionFailedError, NotConfiguredError
from penstock.http.async_connections import AsyncConnections
from penstock.http.async_transport import AsyncHttpTransport
from penstock.http.connections import Connections
from penstock.http.http_message import Response
from penstock.http.no_answer import ANSWER_TIMEOUT_S
from penstock.http.proxy import proxy_of
from penstock.http.transport import HttpTransport, Transport
from penstock.system import wall_clock_ms
from penstock_core.limits import SDK_IDLE_CONNECTION_MS_MAX
from tests.support.deadlines import DEADLINE_S


class _Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        server.requests.append((self.path, dict(self.headers.items()), body, self.client_address))  # type: ignore[attr-defined]  # set below
        if self.path.startswith("/hang-up"):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if self.path.startswith("/refused"):
            server.refusals -= 1  # type: ignore[attr-defined]  # set by the test
            self.send_response_only(403 if server.refusals >= 0 else 418)  # type: ignore[attr-defined]  # as above
            self.send_header("Date", formatdate(server.now_s, usegmt=True))  # type: ignore[attr-defined]  # as above
        else:
            self.send_response(418)
        self.send_header("Content-Length", "2")
        self.send_header("X-Answer", "yes")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Recorder)
    server.daemon_threads = True
    server.requests = []  # type: ignore[attr-defined]  # for the handler
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Looped:
    """An AsyncHttpTransport that is called from outside its loop."""

    def __init__(self, configuration: Configuration) -> None:
        self._inner = AsyncHttpTransport(configuration)
        self._runner = asyncio.Runner()

    def call(self, *args: Any) -> Response:
        return self._runner.run(self._inner.call(*args))

    def close(self) -> None:
        self._runner.run(self._inner.close())
        self._runner.close()


@pytest.fixture(params=[HttpTransport, Looped])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Transport]]:
    """Makes a transport to a port: each test runs with both adapters."""
    made: list[Transport] = []

    def make(port: int) -> Transport:
        credentials = Credentials("AKIDEXAMPLE", "secret", "a-token")
        configuration = Configuration(url=f"http://127.0.0.1:{port}", region="eu-west-3", credentials=credentials)
        made.append(request.param(configuration))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def test_call_carries_request_and_answer(make: Callable[[int], Transport], server: ThreadingHTTPServer) -> None:
    transport = make(server.server_port)
    response = transport.call("POST", "/v1/x", {"a": "1 2", "b": "é"}, {"Content-Type": "text/x"}, b"\x00body")
    assert (response.status, response.body, response.headers["X-Answer"]) == (418, b"ok", "yes")
    path, headers, body, _ = server.requests[0]  # type: ignore[attr-defined]  # set above
    assert path == "/v1/x?a=1%202&b=%C3%A9"
    assert body == b"\x00body"
    assert headers["Content-Type"] == "text/x"


def test_call_is_signed_for_the_region_with_the_session_token(
    make: Callable[[int], Transport], server: ThreadingHTTPServer
) -> None:
    transport = make(server.server_port)
    transport.call("POST", "/v1/x", {}, {}, b"body")
    _, headers, body, _ = server.requests[0]  # type: ignore[attr-defined]  # set above
    assert headers["X-Amz-Security-Token"] == "a-token"
    date = headers["X-Amz-Date"]
    scope = f"{date[:8]}/eu-west-3/execute-api/aws4_request"
    assert f"Credential=AKIDEXAMPLE/{scope}" in headers["Authorization"]
    # The signature by the definition (AWS Signature Version 4), not by the library that made it.
    signed = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0]
    lines = "".join(f"{name}:{_header(headers, name)}\n" for name in signed.split(";"))
    canonical = f"POST\n/v1/x\n\n{lines}\n{signed}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = _hmac(key, part)
    assert headers["Authorization"].endswith(f"Signature={_hmac(key, text).hex()}")


def test_calls_reuse_the_connection(make: Callable[[int], Transport], server: ThreadingHTTPServer) -> None:
    transport = make(server.server_port)
    for _ in range(3):
        transport.call("POST", "/v1/x", {}, {}, b"body")
    assert len({address for *_, address in server.requests}) == 1  # type: ignore[attr-defined]  # set above


def test_call_opens_a_new_connection_when_the_old_one_was_idle_for_too_long(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_ms = [0]
    monkeypatch.setattr("penstock.http.connections.wall_clock_ms", lambda: times_ms[-1])
    configuration = Configuration(
        url=f"http://127.0.0.1:{server.server_port}", region="eu-west-3", credentials=Credentials("AKID", "secret")
    )
    transport = HttpTransport(configuration)
    for idle_ms in (0, SDK_IDLE_CONNECTION_MS_MAX, SDK_IDLE_CONNECTION_MS_MAX + 1, 1):
        times_ms.append(times_ms[-1] + idle_ms)
        transport.call("POST", "/v1/x", {}, {}, b"body")
    transport.close()
    first, second, third, fourth = [address for *_, address in server.requests]  # type: ignore[attr-defined]  # set above
    assert first == second != third == fourth


def test_each_connection_has_an_age_of_its_own(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One busy thread keeps its own connection young, and no other."""
    times_ms = [0]
    monkeypatch.setattr("penstock.http.connections.wall_clock_ms", lambda: times_ms[-1])
    connections = Connections(DEADLINE_S)
    url = f"http://127.0.0.1:{server.server_port}/v1/x"
    pool = connections._new_pool(url).connection_from_url(url)
    first, second = pool._get_conn(), pool._get_conn()
    for each in (first, second):
        each.request("POST", "/v1/x")
        each.getresponse().read()
        pool._put_conn(each)
    times_ms.append(SDK_IDLE_CONNECTION_MS_MAX)
    assert pool._get_conn() is second
    pool._put_conn(second)
    times_ms.append(SDK_IDLE_CONNECTION_MS_MAX + 1)
    busy, idle = pool._get_conn(), pool._get_conn()
    assert (busy is second, busy.is_closed) == (True, False)
    assert (idle is first, idle.is_closed) == (True, True)
    pool.close()


def test_async_connections_are_new_after_a_jump_of_the_wall_clock(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's clock stands still in a freeze."""
    behind_ms = [0]
    monkeypatch.setattr("penstock.http.async_connections.wall_clock_ms", lambda: wall_clock_ms() + behind_ms[-1])

    async def call_four_times() -> None:
        connections = AsyncConnections(ANSWER_TIMEOUT_S)
        for frozen_ms in (0, SDK_IDLE_CONNECTION_MS_MAX // 2, SDK_IDLE_CONNECTION_MS_MAX * 2, 0):
            behind_ms.append(behind_ms[-1] + frozen_ms)
            await connections.send("POST", f"http://127.0.0.1:{server.server_port}/v1/x", {}, b"body")
        await connections.close()

    asyncio.run(call_four_times())
    first, second, third, fourth = [address for *_, address in server.requests]  # type: ignore[attr-defined]  # set above
    assert first == second != third == fourth


def test_calls_under_way_end_on_old_connections_which_are_closed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    behind_ms = 0
    monkeypatch.setattr("penstock.http.async_connections.wall_clock_ms", lambda: wall_clock_ms() + behind_ms)

    async def call_on_both_sides_of_a_jump() -> None:
        nonlocal behind_ms
        ended = [asyncio.Event(), asyncio.Event()]
        come = asyncio.Queue[asyncio.StreamWriter]()

        async def answer_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = come.qsize() + len(writers)
            await reader.readuntil(b"\r\n\r\n")
            await come.put(writer)
            await reader.read()
            ended[number].set()
            writer.close()

        writers: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(answer_later, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        connections = AsyncConnections(ANSWER_TIMEOUT_S)
        calls, kept = [], []
        for _ in range(2):
            calls.append(asyncio.create_task(connections.send("GET", url, {}, b"")))
            writers.append(await come.get())
            kept.append(connections._session)  # or its end would close it
            behind_ms += 2 * SDK_IDLE_CONNECTION_MS_MAX
        for each in writers:
            each.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert [(await each).status for each in calls] == [200, 200]
        await ended[0].wait()
        assert not ended[1].is_set()
        await connections.close()
        server.close()

    asyncio.run(call_on_both_sides_of_a_jump())


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "https://api.example.com/v1", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://api.example.com/v1", "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, "https://api.example.com/v1", "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://127.0.0.1:4566", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example.com"}, "https://api.example.com/v1", None),
        ({"ALL_PROXY": "http://proxy:3128"}, "https://api.example.com/v1", "http://proxy:3128"),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://127.0.0.1:4566", None),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://localhost:4566", None),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "stack:4566"}, "http://stack:4566/v1", None),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "stack"}, "http://stack:4566/v1", None),
    ],
)
def test_proxy_is_the_one_that_other_clients_of_aws_use(
    variables: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(url) == proxy


@pytest.mark.parametrize("is_async", [False, True])
def test_call_goes_through_the_proxy_of_the_environment(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """The server stands for the proxy: it gets the whole URL of a host that has no address."""
    monkeypatch.setenv("http_proxy", f"http://bob:s%40fe@127.0.0.1:{server.server_port}")
    url = "http://api.penstock.invalid/v1/x"
    if is_async:

        async def call() -> None:
            connections = AsyncConnections(ANSWER_TIMEOUT_S)
            await connections.send("POST", url, {}, b"body")
            await connections.close()

        asyncio.run(call())
    else:
        Connections(DEADLINE_S).send("POST", url, {}, b"body")
    [(path, headers, *_)] = server.requests  # type: ignore[attr-defined]  # set above
    assert path == url
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent["proxy-authorization"] == f"Basic {b64encode(b'bob:s@fe').decode()}"


def test_proxy_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5h://127.0.0.1:1080")
    with pytest.raises(NotConfiguredError, match="'socks5h' for api"):
        proxy_of("https://api.example.com/v1")


def test_large_body_is_sent_whole(make: Callable[[int], Transport], server: ThreadingHTTPServer) -> None:
    sent = bytes(range(256)) * 4 * 4_096
    make(server.server_port).call("POST", "/v1/x", {}, {}, sent)
    (_, headers, body, _) = server.requests[0]  # type: ignore[attr-defined]  # set above
    assert body == sent
    assert headers["Content-Length"] == str(len(sent))


def test_refused_connection_was_certainly_not_sent(make: Callable[[int], Transport]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ConnectionFailedError, match="no answer") as caught:
        make(port).call("POST", "/v1/x", {}, {}, b"body")
    assert not caught.value.maybe_applied


def test_lost_answer_may_have_been_applied(make: Callable[[int], Transport], server: ThreadingHTTPServer) -> None:
    transport = make(server.server_port)
    with pytest.raises(ConnectionFailedError) as caught:
        transport.call("POST", "/hang-up", {}, {}, b"body")
    assert caught.value.maybe_applied


@pytest.mark.parametrize(
    ("clock_off_s", "refusals", "status", "requests"),
    [
        ((-600, 0), 1, 418, 2),  # stood still between signature and send
        ((-600, -600), 1, 418, 2),  # a wrong clock
        ((600, 600), 1, 418, 2),
        ((-600, 0), 2, 403, 2),  # once more, and no oftener
        ((0, 0), 1, 403, 1),  # refused for something else
        ((-50, 0), 1, 403, 1),
    ],
)
def test_request_is_signed_anew_once_when_it_may_have_been_refused_for_its_time(
    make: Callable[[int], Transport],
    server: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    clock_off_s: tuple[int, int],
    refusals: int,
    status: int,
    requests: int,
) -> None:
    now_ms, signing_ms = 1_800_000_000_000, [1_000 * each for each in clock_off_s]
    monkeypatch.setattr(
        "penstock.http.signature.wall_clock_ms",
        lambda: now_ms + (signing_ms.pop(0) if len(signing_ms) > 1 else signing_ms[0]),
    )
    server.now_s = now_ms / 1_000  # type: ignore[attr-defined]  # for the handler
    server.refusals = refusals  # type: ignore[attr-defined]  # for the handler
    assert make(server.server_port).call("POST", "/refused", {}, {}, b"body").status == status
    dates = [headers["X-Amz-Date"] for _, headers, *_ in server.requests]  # type: ignore[attr-defined]  # set above
    assert len(dates) == requests
    if requests == 2:
        assert dates[1] == "20270115T080000Z"


def _header(headers: dict[str, str], name: str) -> str:
    return next(value for each, value in headers.items() if each.lower() == name)


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _rude_server(first_answer: bytes) -> tuple[socket.socket, threading.Thread]:
    """A server that reads a little, says this, and hangs up: it shakes no hands, and is no proxy."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # closed by the test
            while True:
                connection, _ = listening.accept()
                connection.recv(100)
                connection.sendall(first_answer)
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listening, thread


@pytest.mark.parametrize("by_proxy", [False, True], ids=["handshake", "proxy"])
@pytest.mark.parametrize("kind", [HttpTransport, Looped])
def test_request_is_certainly_not_sent_when_no_handshake_or_no_tunnel_comes_about(
    monkeypatch: pytest.MonkeyPatch, kind: type[HttpTransport] | type[Looped], by_proxy: bool
) -> None:
    listening, thread = _rude_server(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n" if by_proxy else b"")
    port = listening.getsockname()[1]
    if by_proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    url = "https://penstock.invalid" if by_proxy else f"https://127.0.0.1:{port}"
    transport = kind(Configuration(url=url, region="eu-west-3", credentials=Credentials("AKID", "secret")))
    try:
        with pytest.raises(ConnectionFailedError) as failed:
            transport.call("POST", "/v1/x", {}, {}, b"body")
        assert not failed.value.maybe_applied
    finally:
        transport.close()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
