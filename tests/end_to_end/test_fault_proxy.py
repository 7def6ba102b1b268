"""The proxy forwards calls unchanged. A fault hits its call, whose effect happens or not, as the fault says."""

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests.end_to_end.fault_proxy import Call, Corrupt, Fault, Hang, Reset, fault_proxy, s3_error
from tests.support.deadlines import DEADLINE_S

BODY = bytes(range(256)) * 4096  # 1 MiB


class Upstream(ThreadingHTTPServer):
    """Answers with the body of the request, and counts."""

    def __init__(self) -> None:
        self.served: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Echo)


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.served.append((self.path, self.headers["Host"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        return


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def put(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE_S)
    try:
        connection.request("PUT", "/bucket/some/key", BODY, {"Host": "signed.example", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def url_of(server: Upstream) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_bytes_path_and_host_pass_unchanged_when_there_is_no_fault(upstream: Upstream) -> None:
    calls: list[Call] = []
    with fault_proxy(url_of(upstream), calls.append) as url:
        assert put(url) == (200, BODY)
    assert upstream.served == [("/bucket/some/key", "signed.example")]
    assert calls == [Call(service="s3", operation="PutObject", bucket="bucket")]


@pytest.mark.parametrize(("fault", "told"), [(None, [(200, BODY)]), (s3_error(404, "NoSuchBucket"), [])])
def test_answers_of_upstream_are_told_and_injected_ones_are_not(
    upstream: Upstream, fault: Fault | None, told: list[tuple[int, bytes]]
) -> None:
    heard: list[tuple[int, bytes]] = []

    def hear(_call: Call, status: int, body: bytes) -> None:
        heard.append((status, body))

    with fault_proxy(url_of(upstream), lambda call: fault, hear) as url:
        put(url)
    assert heard == told


def test_caller_may_send_at_once_when_it_expects_100_continue(upstream: Upstream) -> None:
    with fault_proxy(url_of(upstream), lambda call: None) as url:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=DEADLINE_S)
        connection.putrequest("PUT", "/bucket/key")
        connection.putheader("Content-Length", str(len(BODY)))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.sock.recv(64).startswith(b"HTTP/1.1 100")
        connection.send(BODY)
        assert connection.getresponse().read() == BODY
        connection.close()


def test_corrupted_answer_differs_in_one_byte(upstream: Upstream) -> None:
    with fault_proxy(url_of(upstream), lambda call: Corrupt()) as url:
        status, body = put(url)
    assert (status, len(body)) == (200, len(BODY))
    assert sum(is_not != was for is_not, was in zip(body, BODY, strict=True)) == 1


@pytest.mark.parametrize("is_applied", [True, False])
def test_call_has_its_effect_only_when_the_reset_says_so(upstream: Upstream, is_applied: bool) -> None:
    with fault_proxy(url_of(upstream), lambda call: Reset(is_applied=is_applied)) as url, pytest.raises(OSError):
        put(url)
    assert len(upstream.served) == is_applied


def test_call_has_no_effect_when_a_refusal_is_injected(upstream: Upstream) -> None:
    with fault_proxy(url_of(upstream), lambda call: s3_error(404, "NoSuchBucket")) as url:
        status, body = put(url)
    assert status == 404
    assert b"<Code>NoSuchBucket</Code>" in body
    assert upstream.served == []


def test_hanging_call_ends_without_effect_when_its_outage_ends(upstream: Upstream) -> None:
    is_over = threading.Event()
    begun = threading.Event()

    def hang(call: Call) -> Fault:
        begun.set()
        return Hang(is_over=is_over)

    outcome: list[BaseException] = []

    def caller(url: str) -> None:
        with pytest.raises(OSError) as caught:
            put(url)
        outcome.append(caught.value)

    with fault_proxy(url_of(upstream), hang) as url:
        thread = threading.Thread(target=caller, args=(url,))
        thread.start()
        try:
            assert begun.wait(DEADLINE_S)
            assert not outcome
        finally:
            is_over.set()
            thread.join()
    assert len(outcome) == 1
    assert upstream.served == []
