"""A transport whose service refuses some paths, as a gateway does."""

from collections.abc import Mapping

from penstock.http.http_message import Response
from penstock.http.transport import Transport


class DenyingTransport:
    """Refuses the paths that begin so."""

    def __init__(self, inner: Transport, denied: str, *, status: int = 403) -> None:
        self._inner = inner
        self._denied = denied
        self._status = status

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path.startswith(self._denied):
            return Response(self._status, {}, b'{"message": "Forbidden"}')
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass
