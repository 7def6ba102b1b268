"""One signed request and its answer: the port that everything in the SDK calls through, and its HTTP adapter."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlencode

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from penstock.configuration import Configuration, find_configuration
from penstock.errors import ConnectionFailedError, NotConfiguredError

SERVICE = "execute-api"
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 35  # API Gateway ends a call after 30 s
POOL_CONNECTIONS = 16


class Response(NamedTuple):
    """An answer: any status; header names as the server wrote them."""

    status: int
    headers: Mapping[str, str]
    body: bytes


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
        url = self._configuration.url + quote(path)
        if query:
            url += "?" + urlencode(query, quote_via=quote)
        signed = self._sign(method, url, headers, body)
        try:
            answer = self._pool.request(method, url, headers=signed, body=body or None, redirect=False)
        except HTTPError as error:
            # These are raised before the first byte of the request leaves.
            maybe_sent = not isinstance(error, NewConnectionError | ConnectTimeoutError)
            raise ConnectionFailedError(
                f"no answer from {self._configuration.url} to {method} {path}: {error}", maybe_applied=maybe_sent
            ) from error
        return Response(answer.status, answer.headers, answer.data)

    def close(self) -> None:
        self._pool.clear()

    def _sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
        try:
            # Frozen: key, secret and token of one moment; refreshed here when they are about to expire.
            credentials = self._configuration.credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise NotConfiguredError(f"the AWS credentials could not be refreshed: {error}") from error
        SigV4Auth(credentials, SERVICE, self._configuration.region).add_auth(request)
        return dict(request.headers.items())


def open_transport(url: str | None = None, region: str | None = None, transport: Transport | None = None) -> Transport:
    """`transport` if it is given, else HTTP to where `find_configuration` says. Opens no connection yet."""
    return transport or HttpTransport(find_configuration(url, region))
