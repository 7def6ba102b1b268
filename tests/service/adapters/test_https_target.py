"""Requests to endpoints, over real sockets and real TLS: what reaches the endpoint, and what is refused before it."""

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest
import trustme

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PUSH_ADDRESSES_MAX, PUSH_ANSWER_BYTES_MAX
from penstock_core.push.targets.public_address import Address, parse_networks
from penstock_core.version import VERSION
from penstock_service.adapters.https_target import HttpAnswer, HttpsEndpoints, resolve
from penstock_service.adapters.system import SystemClock
from tests.support.refusals import refused

HOST = "receiver.example"
LOCAL = parse_networks("127.0.0.0/8")
LOOPBACK = ip_address("127.0.0.1")
LONG_MS = 60_000
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

Reply = Callable[[socket.socket], None]


@dataclass(slots=True)
class Endpoint:
    """A server that reads one request and gives one reply. `names` are those that clients asked for by TLS."""

    port: int
    request: Future[bytes]
    names: list[str | None] = field(default_factory=list)

    def url(self, scheme: str = "https") -> str:
        return f"{scheme}://{HOST}:{self.port}/in?a=1"


class SteppedClock(SystemClock):
    """Each look at the time finds it ten seconds later."""

    def __init__(self) -> None:
        self.seen_ms = 0.0

    def monotonic_ms(self) -> float:
        self.seen_ms += 10_000
        return self.seen_ms


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def open_endpoint(authority: trustme.CA) -> Iterator[Callable[..., Endpoint]]:
    """Starts endpoints, each for one request. `certified` is the name in the certificate; None is no TLS."""
    listeners: list[socket.socket] = []
    pool = ThreadPoolExecutor()

    def start(reply: bytes | Reply = OK, certified: str | None = HOST) -> Endpoint:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        names: list[str | None] = []
        context = None if certified is None else _server_context(authority, certified, names)
        request = pool.submit(_serve_one, listener, context, reply)
        return Endpoint(port=listener.getsockname()[1], request=request, names=names)

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # ends an accept that waits
        listener.close()
    pool.shutdown()


def _server_context(authority: trustme.CA, name: str, names: list[str | None]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    context.sni_callback = lambda _socket, asked, _context: names.append(asked)
    return context


def _serve_one(listener: socket.socket, context: ssl.SSLContext | None, reply: bytes | Reply) -> bytes:
    connection, _ = listener.accept()
    with connection if context is None else context.wrap_socket(connection, server_side=True) as stream:
        request = _read_request(stream)
        if isinstance(reply, bytes):
            stream.sendall(reply)
        else:
            reply(stream)
    return request


def _read_request(stream: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += stream.recv(65_536)
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
    length = next(lengths, 0)
    while len(body) < length:
        body += stream.recv(65_536)
    return head + b"\r\n\r\n" + body


def _endpoints(authority: trustme.CA, *addresses: Address, clock: SystemClock | None = None) -> HttpsEndpoints:
    """With loopback allowed, and a resolver that knows these addresses; by default the endpoint's."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return HttpsEndpoints(
        clock or SystemClock(),
        allowed_private=LOCAL,
        context=context,
        resolver=lambda host, port: addresses or [LOOPBACK],
    )


def _refusal(call: Callable[[], object], code: ErrorCode, *, maybe_applied: bool) -> str:
    with pytest.raises(PenstockError) as caught:
        call()
    assert (caught.value.code, caught.value.maybe_applied) == (code, maybe_applied)
    return caught.value.message


def _unanswered(call: Callable[[], object], *, maybe_applied: bool) -> str:
    return _refusal(call, ErrorCode.STORAGE_UNAVAILABLE, maybe_applied=maybe_applied)


def test_get_sends_no_body_and_is_checked_as_a_post_is(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint()
    answer = _endpoints(authority).get(endpoint.url(), {"accept": "x"}, LONG_MS)
    request_line, *headers = endpoint.request.result().decode().split("\r\n")
    assert (answer.status, request_line) == (200, "GET /in?a=1 HTTP/1.1")
    assert "accept: x" in headers
    assert not [each for each in headers if each.lower().startswith(("content-length", "transfer-encoding"))]
    private = HttpsEndpoints(SystemClock(), resolver=lambda host, port: [LOOPBACK])
    assert "127.0.0.1, which is loopback" in _refusal(
        lambda: private.get(endpoint.url(), {}, LONG_MS), ErrorCode.INVALID_CONFIG, maybe_applied=False
    )


def test_post_sends_the_request_to_the_checked_address_under_the_hosts_name(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint()
    answer = _endpoints(authority).post(endpoint.url(), {"webhook-id": "msg_1"}, b"body" * 50_000, LONG_MS)

    assert answer == HttpAnswer(status=200, body=b"{}")
    head, _, body = endpoint.request.result().partition(b"\r\n\r\n")
    request_line, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert request_line == "POST /in?a=1 HTTP/1.1"
    assert headers["host"] == f"{HOST}:{endpoint.port}"
    assert (headers["webhook-id"], headers["connection"], headers["content-length"]) == ("msg_1", "close", "200000")
    assert (headers["user-agent"], headers["accept-encoding"]) == (f"penstock/{VERSION}", "identity")
    assert body == b"body" * 50_000
    assert endpoint.names == [HOST]


def test_host_is_resolved_once_so_that_a_second_answer_cannot_lead_elsewhere(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint, asked = open_endpoint(), []

    def rebinding(host: str, port: int) -> Sequence[Address]:
        asked.append((host, port))
        return [LOOPBACK if len(asked) == 1 else ip_address("169.254.169.254")]

    context = ssl.create_default_context()
    authority.configure_trust(context)
    endpoints = HttpsEndpoints(SystemClock(), allowed_private=LOCAL, context=context, resolver=rebinding)
    assert endpoints.post(endpoint.url(), {}, b"", LONG_MS).status == 200
    assert asked == [(HOST, endpoint.port)]


@pytest.mark.parametrize("private", ["10.0.0.5", "169.254.169.254", "fd00:ec2::254", "::ffff:7f00:1"])
def test_no_connection_is_made_if_one_address_is_private(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    monkeypatch.setattr(socket, "create_connection", pytest.fail)
    endpoints = _endpoints(authority, ip_address("93.184.216.34"), ip_address(private))
    message = _refusal(
        lambda: endpoints.post(f"https://{HOST}/", {}, b"", LONG_MS), ErrorCode.INVALID_CONFIG, maybe_applied=False
    )
    assert private in message


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]", "0"])
def test_a_machine_that_names_itself_is_refused_by_default(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", pytest.fail)
    endpoints = HttpsEndpoints(SystemClock())
    message = _refusal(
        lambda: endpoints.post(f"https://{host}:9001/", {}, b"", LONG_MS), ErrorCode.INVALID_CONFIG, maybe_applied=False
    )
    assert "which is" in message


def test_http_is_spoken_with_allowed_addresses_only(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint(certified=None)
    assert _endpoints(authority).post(endpoint.url("http"), {}, b"", LONG_MS) == HttpAnswer(status=200, body=b"{}")

    public = _endpoints(authority, LOOPBACK, ip_address("93.184.216.34"))
    message = _refusal(
        lambda: public.post(endpoint.url("http"), {}, b"", LONG_MS), ErrorCode.INVALID_CONFIG, maybe_applied=False
    )
    assert "give an https:// address" in message


def test_certificate_of_another_host_is_refused_before_anything_is_sent(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint(certified="other.example")
    message = _unanswered(lambda: _endpoints(authority).post(endpoint.url(), {}, b"", LONG_MS), maybe_applied=False)
    assert "CERTIFICATE_VERIFY_FAILED" in message


def test_certificate_of_an_unknown_authority_is_refused(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint()
    endpoints = HttpsEndpoints(SystemClock(), allowed_private=LOCAL, resolver=lambda host, port: [LOOPBACK])
    message = _unanswered(lambda: endpoints.post(endpoint.url(), {}, b"", LONG_MS), maybe_applied=False)
    assert "CERTIFICATE_VERIFY_FAILED" in message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_an_answer_and_is_not_followed(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint], status: int
) -> None:
    elsewhere = open_endpoint()
    redirect = f"HTTP/1.1 {status} Moved\r\nlocation: {elsewhere.url()}\r\ncontent-length: 0\r\n\r\n"
    endpoint = open_endpoint(redirect.encode())
    assert _endpoints(authority).post(endpoint.url(), {}, b"", LONG_MS) == HttpAnswer(status=status, body=b"")
    assert not elsewhere.request.done()


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole and more",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nwh\r\n3\r\nole\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nwhole",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole",
    ],
)
def test_answer_is_read_in_each_form_of_http(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint], reply: bytes
) -> None:
    answer = _endpoints(authority).post(open_endpoint(reply).url(), {}, b"", LONG_MS)
    assert answer == HttpAnswer(status=200, body=b"whole")


def test_answer_is_not_decompressed(authority: trustme.CA, open_endpoint: Callable[..., Endpoint]) -> None:
    reply = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00"
    assert _endpoints(authority).post(open_endpoint(reply).url(), {}, b"", LONG_MS).body == b"\x1f\x8b\x08\x00"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"", "without response"),
        (b"\x00\x01\x02\r\n\r\n", "\x00\x01\x02"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "ended 7 bytes before its end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "ended 9 bytes before its end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{}", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "more than 100 headers"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "more than 65536 bytes"),
    ],
)
def test_answer_that_is_not_whole_is_no_answer(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint], reply: bytes, told: str
) -> None:
    url = open_endpoint(reply).url()
    message = _unanswered(lambda: _endpoints(authority).post(url, {}, b"", LONG_MS), maybe_applied=True)
    assert told in message
    assert message.startswith(f"no answer of https://{HOST}:")


def _flood(status: bytes) -> Reply:
    def reply(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 " + status + b"\r\n\r\n")
        try:
            while True:
                stream.sendall(b"x" * 65_536)
        except OSError:
            return  # the client has gone

    return reply


def test_answer_without_end_is_no_answer(authority: trustme.CA, open_endpoint: Callable[..., Endpoint]) -> None:
    url = open_endpoint(_flood(b"200 OK")).url()
    message = _unanswered(lambda: _endpoints(authority).post(url, {}, b"", LONG_MS), maybe_applied=True)
    assert "more than 1,048,576 bytes" in message


def test_refusal_without_end_is_cut(authority: trustme.CA, open_endpoint: Callable[..., Endpoint]) -> None:
    answer = _endpoints(authority).post(open_endpoint(_flood(b"500 Broken")).url(), {}, b"", LONG_MS)
    assert answer == HttpAnswer(status=500, body=b"x" * PUSH_ANSWER_BYTES_MAX)


def _drip(head: bytes) -> Reply:
    def reply(stream: socket.socket) -> None:
        try:
            stream.sendall(head)
            while True:
                stream.sendall(b"x")
        except OSError:
            return

    return reply


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n"])
def test_answer_that_drips_ends_with_the_deadline(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint], head: bytes
) -> None:
    """Each look at the clock costs ten seconds, and there is one before each read: 50 s are over after a few."""
    url = open_endpoint(_drip(head)).url()
    endpoints = _endpoints(authority, clock=SteppedClock())
    message = _unanswered(lambda: endpoints.post(url, {}, b"", 90_000), maybe_applied=True)
    assert "the time for the request is over" in message


def test_silent_endpoint_ends_with_the_timeout(authority: trustme.CA, open_endpoint: Callable[..., Endpoint]) -> None:
    url = open_endpoint(lambda stream: assert_closed(stream)).url()
    message = _unanswered(lambda: _endpoints(authority).post(url, {}, b"", 200), maybe_applied=True)
    assert "timed out" in message or "time for the request is over" in message


def assert_closed(stream: socket.socket) -> None:
    assert stream.recv(1) == b""


def test_endpoint_that_takes_no_connection_was_sent_nothing(authority: trustme.CA) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    message = _unanswered(
        lambda: _endpoints(authority).post(f"https://{HOST}:{port}/", {}, b"", LONG_MS), maybe_applied=False
    )
    assert "refused" in message


def test_second_address_is_tried_when_the_first_takes_no_connection(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint()
    addresses = [ip_address("127.0.0.2"), LOOPBACK]
    assert _endpoints(authority, *addresses).post(endpoint.url(), {}, b"", LONG_MS).status == 200


def test_addresses_beyond_the_bound_are_checked_and_not_tried(
    authority: trustme.CA, open_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = open_endpoint()
    many = [ip_address(f"127.0.0.{number}") for number in range(2, 2 + PUSH_ADDRESSES_MAX)]
    message = _unanswered(
        lambda: _endpoints(authority, *many, LOOPBACK).post(endpoint.url(), {}, b"", LONG_MS), maybe_applied=False
    )
    assert "refused" in message
    assert not endpoint.request.done()


@pytest.mark.parametrize("host", ["a..example", f"{'x' * 64}.example"])
def test_name_that_is_none_was_sent_nothing(host: str) -> None:
    endpoints = HttpsEndpoints(SystemClock())
    _unanswered(lambda: endpoints.post(f"https://{host}/", {}, b"", LONG_MS), maybe_applied=False)
    refused(ErrorCode.INVALID_CONFIG, lambda: endpoints.check(f"https://{host}/"))


def test_name_that_nobody_knows_was_sent_nothing() -> None:
    def unknown(host: str, port: int) -> Sequence[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    endpoints = HttpsEndpoints(SystemClock(), resolver=unknown)
    message = _unanswered(lambda: endpoints.post(f"https://{HOST}/", {}, b"", LONG_MS), maybe_applied=False)
    assert message.startswith(f"no answer of https://{HOST}: ")
    assert "Name or service not known" in message


def test_resolver_gives_addresses_of_a_literal_without_asking_anyone() -> None:
    assert set(resolve("127.0.0.1", 443)) == {LOOPBACK}
    assert set(resolve("::1", 443)) == {ip_address("::1")}


def test_check_resolves_the_host_and_sends_nothing(authority: trustme.CA) -> None:
    _endpoints(authority, LOOPBACK).check(f"https://{HOST}:1/in")


def test_check_refuses_an_address_that_is_not_public(authority: trustme.CA) -> None:
    error = refused(
        ErrorCode.INVALID_CONFIG, lambda: _endpoints(authority, ip_address("10.0.0.1")).check(f"https://{HOST}/in")
    )
    assert "10.0.0.1, which is private" in error.message


def test_check_refuses_a_host_without_an_address() -> None:
    def unknown(_host: str, _port: int) -> Sequence[Address]:
        raise socket.gaierror(-2, "Name or service not known")

    endpoints = HttpsEndpoints(SystemClock(), resolver=unknown)
    error = refused(ErrorCode.INVALID_CONFIG, lambda: endpoints.check(f"https://{HOST}/in"))
    assert error.message == f"'{HOST}' has no address: [Errno -2] Name or service not known"
