"""A transport that gives up at once if nothing answers: a person waits for the page."""

from collections.abc import Mapping

from penstock.errors import ConnectionFailedError
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport


class ServiceDownError(Exception):
    """The service did not answer. It is no PenstockError: no client tries again."""

    def __init__(self, error: ConnectionFailedError) -> None:
        super().__init__(str(error))
        self.error = error


class PromptTransport:
    """A Transport whose failed connections are not tried again."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request. Raises ServiceDownError if there is no answer."""
        try:
            return self._inner.call(method, path, query, headers, body)
        except ConnectionFailedError as error:
            raise ServiceDownError(error) from error

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the inner transport cannot sign them."""
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()
