import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from penstock.http.abilities import request_bytes_max_of
from penstock.http.http_message import Response
from penstock.http.threaded_transport import ThreadedTransport
from penstock_core.limits import REQUEST_BYTES_MAX


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
