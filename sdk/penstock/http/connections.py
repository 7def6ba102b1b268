"""Kept-alive connections of a client that waits in threads: one request, one answer, no retry and no redirect."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    PoolError,
    ProxyError,
)
from urllib3.util.connection import allowed_gai_family, create_connection

from penstock.http.http_message import Response
from penstock.http.no_answer import CONNECT_TIMEOUT_S, NoAnswerError
from penstock.http.proxy import proxy_of
from penstock.system import fork_count, monotonic_ms, wall_clock_ms
from penstock_core.limits import SDK_CONNECTIONS_MAX, SDK_IDLE_CONNECTION_MS_MAX

if TYPE_CHECKING:
    from urllib3._base_connection import BaseHTTPConnection


class _Connection(HTTPConnection):
    """Has one time to connect for all addresses of its host. urllib3 has it for each of them."""

    def _new_conn(self) -> socket.socket:
        timeout_s = float(self.timeout or 0)
        until_ms = monotonic_ms() + 1_000 * timeout_s
        try:
            found = socket.getaddrinfo(self._dns_host, self.port, allowed_gai_family(), socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise NewConnectionError(self, f"{self.host!r:.300} is no name of a host") from error
        failed: OSError = OSError("the host has no address")
        for number, (*_, address) in enumerate(found):
            share_s = max(until_ms - monotonic_ms(), 1) / (len(found) - number) / 1_000
            try:
                connected = create_connection(
                    (str(address[0]), int(address[1])), share_s, self.source_address, self.socket_options
                )
            except OSError as error:
                failed = error
            else:
                connected.settimeout(timeout_s)  # for the handshake
                return connected
        if isinstance(failed, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host} in {timeout_s:g} s") from failed
        raise NewConnectionError(self, f"no connection to {self.host}: {failed}") from failed


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _AgingPool(HTTPConnectionPool):
    """Knows since when each idle connection is so, and closes one that is taken after too long: urllib3 reopens it."""

    ConnectionCls = _Connection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._idle_since_ms: WeakKeyDictionary[BaseHTTPConnection, tuple[int, float]] = WeakKeyDictionary()

    def _get_conn(self, timeout: float | None = None) -> "BaseHTTPConnection":
        connection = super()._get_conn(timeout)
        wall_ms, own_ms = self._idle_since_ms.get(connection, (wall_clock_ms(), monotonic_ms()))
        if max(wall_clock_ms() - wall_ms, monotonic_ms() - own_ms) > SDK_IDLE_CONNECTION_MS_MAX:
            connection.close()
        return connection

    def _put_conn(self, conn: "BaseHTTPConnection | None") -> None:
        if conn is not None:
            self._idle_since_ms[conn] = wall_clock_ms(), monotonic_ms()
        super()._put_conn(conn)


class _AgingTlsPool(_AgingPool, HTTPSConnectionPool):
    """Tells a failure to connect, the handshake included, from one behind the first byte of a request."""

    ConnectionCls = _TlsConnection

    def _validate_conn(self, conn: "BaseHTTPConnection") -> None:
        with self._connecting():
            super()._validate_conn(conn)  # connects

    def _prepare_proxy(self, conn: Any) -> None:
        with self._connecting():
            super()._prepare_proxy(conn)  # connects by way of the proxy

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPError) as error:
            raise _NotConnectedError(self, str(error)) from error


class _NotConnectedError(PoolError):
    pass


# These are raised before the first byte of the request leaves.
_NOT_SENT = (NewConnectionError, ConnectTimeoutError, ProxyError, _NotConnectedError)


class Connections:
    """A pool that several threads may use, and a child by fork() too.

    A connection that was idle for `SDK_IDLE_CONNECTION_MS_MAX`, by either clock, is not used again: after the freeze of
    a Lambda function it may be dead, and a request on a dead one waits for `timeout_s`. The monotonic clock may stand
    still meanwhile. Requests go through the proxy that the environment names for the first URL.
    """

    def __init__(self, timeout_s: float, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(connect_timeout_s, timeout_s)
        self._pool: urllib3.PoolManager | None = None
        self._forks = fork_count()

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The answer of any status. The body is sent without a copy. Raises NoAnswerError."""
        if self._forks != fork_count():  # the connections are the parent's: two processes would mix their answers
            self._pool, self._forks = None, fork_count()
        pool = self._pool = self._pool or self._new_pool(url)
        try:
            answer = pool.request(method, url, headers=headers, body=body or None, redirect=False)
        except HTTPError as error:
            maybe_sent = not isinstance(error, _NOT_SENT)
            raise NoAnswerError(str(error), maybe_sent=maybe_sent) from error
        return Response(answer.status, answer.headers, answer.data)

    def close(self) -> None:
        """Close the pool. A later request opens connections again."""
        if self._pool is not None:
            self._pool.clear()

    def _new_pool(self, url: str) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=self._connect_timeout_s, read=self._timeout_s)
        proxy = proxy_of(url)
        if proxy is None:
            pool = urllib3.PoolManager(maxsize=SDK_CONNECTIONS_MAX, timeout=timeout, retries=False)
        else:
            pool = urllib3.ProxyManager(
                proxy, maxsize=SDK_CONNECTIONS_MAX, timeout=timeout, retries=False, proxy_headers=_proof_of(proxy)
            )
        pool.pool_classes_by_scheme = {"http": _AgingPool, "https": _AgingTlsPool}
        return pool


def _proof_of(proxy: str) -> dict[str, str]:
    """The header by which a proxy knows its user; none if the URL of the proxy names no user."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    return urllib3.make_headers(proxy_basic_auth=f"{unquote(parts.username)}:{unquote(parts.password or '')}")
