import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Admin, AsyncAdmin
from penstock.errors import NotConfiguredError
from penstock.http.abilities import request_bytes_max_of
from penstock.http.http_message import Response
from penstock.http.named_transport import TRANSPORT, chosen_name
from penstock.http.threaded_transport import ThreadedTransport
from penstock.http.transport import HttpTransport, open_transport
from penstock_core.limits import REQUEST_BYTES_MAX

ELSEWHERE = {TRANSPORT: "embedded"}


def test_name_is_http_when_nothing_chooses() -> None:
    assert chosen_name(None, None, environ={}) == "http"


def test_name_is_that_of_the_environment_when_no_argument_chooses() -> None:
    assert chosen_name(None, None, environ=ELSEWHERE) == "embedded"


def test_argument_goes_before_the_environment() -> None:
    assert chosen_name("http", None, environ=ELSEWHERE) == "http"


@pytest.mark.parametrize(("url", "has_token"), [("https://api", False), (None, True)])
def test_url_and_token_as_arguments_mean_http_when_the_environment_says_else(url: str | None, has_token: bool) -> None:
    assert chosen_name(None, url, has_token=has_token, environ=ELSEWHERE) == "http"


def test_url_beside_another_transport_is_refused() -> None:
    with pytest.raises(NotConfiguredError, match="leave one of them out"):
        chosen_name("embedded", "https://api", environ={})


def test_unknown_name_is_refused_with_the_known_ones_and_its_source() -> None:
    with pytest.raises(NotConfiguredError, match=r"PENSTOCK_TRANSPORT='grpc': use one of http, lambda, embedded"):
        chosen_name(None, None, environ={TRANSPORT: "grpc"})


def test_object_is_taken_as_it_is_when_the_environment_names_a_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRANSPORT, "embedded")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_REGION", "r")
    given = open_transport("https://api")
    assert isinstance(given, HttpTransport)
    assert open_transport(transport=given) is given


@pytest.mark.parametrize("client", [Admin, AsyncAdmin])
def test_client_asks_for_the_named_transport(client: type[Admin] | type[AsyncAdmin]) -> None:
    with pytest.raises(NotConfiguredError, match="transport='embedded' beside a URL"):
        client("https://api", transport="embedded")


class _Recorder:
    def __init__(self) -> None:
        self.threads: list[str] = []
        self.is_closed = False

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.threads.append(threading.current_thread().name)
        return Response(200, {}, body)

    def close(self) -> None:
        self.is_closed = True


def test_threaded_transport_calls_in_the_given_threads() -> None:
    inner = _Recorder()
    with ThreadPoolExecutor(1, thread_name_prefix="own") as threads:
        transport = ThreadedTransport(inner, lambda: threads)
        answer = asyncio.run(transport.call("POST", "/v1/x", {}, {}, b"body"))
    assert answer.body == b"body"
    assert inner.threads == ["own_0"]


def test_threaded_transport_closes_the_inner_one_and_has_its_bound() -> None:
    inner = _Recorder()
    transport = ThreadedTransport(inner)
    assert request_bytes_max_of(transport) == REQUEST_BYTES_MAX
    asyncio.run(transport.close())
    assert inner.is_closed
