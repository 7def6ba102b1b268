"""A transport that fails as the test says."""

import threading
from collections.abc import Callable, Mapping

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport

Fault = Callable[[Callable[[], Response]], Response]


def lost_request(_: Callable[[], Response]) -> Response:
    """The request does not arrive."""
    raise ConnectionFailedError("connection refused", maybe_applied=False)


def lost_answer(send: Callable[[], Response]) -> Response:
    """The service applies the request, and its answer does not arrive."""
    send()
    raise ConnectionFailedError("connection reset", maybe_applied=True)


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Fault:
    """A server that is not Penstock answers."""
    return lambda _: Response(status, headers or {}, body)


class FaultyTransport:
    """Applies `faults[path]` to the next calls of a path, one each. Other calls go through. `calls` records all."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.faults: dict[str, list[Fault]] = {}
        self.calls: list[tuple[str, str, bytes]] = []

    def count(self, path: str) -> int:
        return sum(called == path for _, called, _ in self.calls)

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        with self._lock:
            self.calls.append((method, path, body))
            waiting = self.faults.get(path)
            fault = waiting.pop(0) if waiting else None

        def send() -> Response:
            return self._inner.call(method, path, query, headers, body)

        return send() if fault is None else fault(send)

    def close(self) -> None:
        self._inner.close()
