"""Requests with tokens: what is sent, what happens after a refusal, and what a caller is told."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock import AccessDeniedError, Admin, AsyncAdmin, async_token_transport, token_transport

WHY = 'Bearer scope="" error="invalid_token" error_description="the token has expired"'


class _Tokens(BaseHTTPRequestHandler):
    """Takes the token `good` only, as API Gateway does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sent = self.headers.get_all("Authorization") or []
        self.server.seen.append(sent)  # type: ignore[attr-defined]  # set below
        is_good = sent == ["Bearer good"]
        body = b'{"topics": [], "next_after": null}' if is_good else b'{"message": "Unauthorized"}'
        self.send_response(200 if is_good else 401)
        if not is_good:
            self.send_header("WWW-Authenticate", WHY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)
    server.daemon_threads = True
    server.seen = []  # type: ignore[attr-defined]  # for the handler
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _listed(server: ThreadingHTTPServer, provider: Callable[[], str]) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    assert Admin(transport=token_transport(provider, url)).list_topics() == []


def _listed_async(server: ThreadingHTTPServer, provider: Callable[[], str]) -> None:
    async def call() -> None:
        async with AsyncAdmin(transport=async_token_transport(provider, url)) as admin:
            assert await admin.list_topics() == []

    url = f"http://127.0.0.1:{server.server_port}"
    asyncio.run(call())


CLIENTS = pytest.mark.parametrize("listed", [_listed, _listed_async])
Listed = Callable[[ThreadingHTTPServer, Callable[[], str]], None]


@CLIENTS
def test_token_is_sent_once_and_nothing_is_signed(server: ThreadingHTTPServer, listed: Listed) -> None:
    listed(server, lambda: "good")
    assert server.seen == [["Bearer good"]]  # type: ignore[attr-defined]


@CLIENTS
def test_refused_token_is_asked_for_again_at_once(server: ThreadingHTTPServer, listed: Listed) -> None:
    given = iter(["old", "good"])
    listed(server, lambda: next(given))
    assert server.seen == [["Bearer old"], ["Bearer good"]]  # type: ignore[attr-defined]


@CLIENTS
def test_token_that_stays_refused_is_an_error_that_tells_why(server: ThreadingHTTPServer, listed: Listed) -> None:
    with pytest.raises(AccessDeniedError, match="the token has expired") as refused:
        listed(server, lambda: "secret-of-somebody")
    assert not refused.value.maybe_applied
    assert "secret-of-somebody" not in str(refused.value)
    assert len(server.seen) == 1  # type: ignore[attr-defined]
