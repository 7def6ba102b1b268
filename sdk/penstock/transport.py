"""One signed request and its answer: the port that everything in the SDK calls through, and its HTTP adapter."""

from collections.abc import Mapping
from typing import Protocol

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from penstock.configuration import Configuration, find_configuration
from penstock.errors import ConnectionFailedError
from penstock.http_message import Response
from penstock.signature import sign

__all__ = ["HttpTransport", "Response", "Transport", "open_transport"]

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 35  # API Gateway ends a call after 30 s
POOL_CONNECTIONS = 16


class Transport(Protocol):
    """Carries requests to a Penstock service. Safe for use by several threads."""

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request and wait for its answer, whatever its status.

        Raises ConnectionFailedError if there is none; its `maybe_applied` tells whether the request may have been sent.
        """
        ...

    def close(self) -> None:
        """Give back connections. Calls after this are allowed, and open new ones."""
        ...


class HttpTransport:
    """Signed HTTPS by AWS Signature Version 4, on a pool of kept-alive connections.

    The body is hashed and sent from where it is, without a copy. No retries here, and no redirects.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._pool = urllib3.PoolManager(
            maxsize=POOL_CONNECTIONS,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=ANSWER_TIMEOUT_S),
            retries=False,
        )

    @property
    def url(self) -> str:
        """The service's URL."""
        return self._configuration.url

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        signed = sign(self._configuration, method, path, query, headers, body)
        try:
            answer = self._pool.request(method, signed.url, headers=signed.headers, body=body or None, redirect=False)
        except HTTPError as error:
            # These are raised before the first byte of the request leaves.
            maybe_sent = not isinstance(error, NewConnectionError | ConnectTimeoutError)
            raise ConnectionFailedError(
                f"no answer from {self._configuration.url} to {method} {path}: {error}", maybe_applied=maybe_sent
            ) from error
        return Response(answer.status, answer.headers, answer.data)

    def close(self) -> None:
        self._pool.clear()


def open_transport(url: str | None = None, region: str | None = None, transport: Transport | None = None) -> Transport:
    """`transport` if it is given, else HTTP to where `find_configuration` says. Opens no connection yet."""
    return transport or HttpTransport(find_configuration(url, region))
