"""A transport of a process that dies at one of its calls: before the service has it, or after it has carried it out."""

from collections.abc import Mapping

from penstock.http.http_message import Response
from penstock.http.transport import Transport


class Death(BaseException):
    """The process is gone. No handler of errors sees it."""


class DyingTransport:
    """Passes calls on, and dies at the call number `at`. `calls` counts them."""

    def __init__(self, inner: Transport, at: int, *, is_carried_out: bool) -> None:
        self.calls = 0
        self._inner = inner
        self._at = at
        self._is_carried_out = is_carried_out

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.calls += 1
        if self.calls > self._at or (self.calls == self._at and not self._is_carried_out):
            raise Death
        answer = self._inner.call(method, path, query, headers, body)
        if self.calls == self._at:
            raise Death
        return answer

    def close(self) -> None:
        pass
