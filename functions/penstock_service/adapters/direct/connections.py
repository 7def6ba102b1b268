"""HTTP/1.1 to one service of AWS, on connections that stay open between calls.

After a `NoAnswerError` the service may have had the request.
"""

import os
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock_core.limits import STORAGE_CONNECTIONS_MAX, STORAGE_IDLE_CONNECTION_MS_MAX
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NeverSentError, NoAnswerError
from penstock_service.adapters.system import SystemClock
from penstock_service.adapters.timed_socket import Deadline, TimedSocket
from penstock_service.instance.update_window import Moment
from penstock_service.ports.runtime import Clock

_PORTS = {"http": 80, "https": 443}
_JOINED_BYTES_MAX = 16_384  # of a body that leaves in one piece with its head
_CALL_TIMEOUTS = 3  # read time-outs that a whole call may take: an answer that trickles ends


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its whole body. Header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def refusal(self, operation: str, code: str, message: str, **facts: Any) -> AnsweredError:
        """The error of an answer that refuses the operation, with the text that botocore gives it."""
        text = f"An error occurred ({code}) when calling the {operation} operation: {message}"
        return AnsweredError(code, text=text, status=self.status, **facts)


class Connections:
    """Connections to the service at one origin, such as `https://dynamodb.eu-west-1.amazonaws.com`.

    Safe for use by several threads: each call has a connection of its own. Up to `STORAGE_CONNECTIONS_MAX` stay open.
    Makes no connection before the first call. `host` is the Host header in place of the origin's own.

    A connection that was idle for `STORAGE_IDLE_CONNECTION_MS_MAX`, by either clock, is not used again. A load balancer
    may have forgotten it meanwhile, or the freeze of a function, and no FIN tells so. A connection that fails after it
    was idle ends all others that are idle: the next try of a call takes a new one.
    """

    def __init__(
        self,
        origin: str,
        *,
        connect_timeout_s: float = 1,
        read_timeout_s: float = 5,
        host: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        parts = urlsplit(origin)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{origin!r} is no origin: give http(s)://HOST or http(s)://HOST:PORT")
        self.origin = origin
        self.host = host or parts.netloc
        self._is_secure = parts.scheme == "https"
        self._name = parts.hostname
        self._address = (parts.hostname, parts.port or _PORTS[parts.scheme])
        self._timeouts_s = (connect_timeout_s, read_timeout_s)
        self._clock = clock or SystemClock()
        self._idle: list[tuple[socket.socket, Moment]] = []  # append and pop of a list are atomic

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | memoryview) -> HttpAnswer:
        """The answer to one request. `headers` lack Host and Content-Length.

        The request leaves once: a connection that the service has closed is found before, if that can be seen.
        """
        head = _head(method, target, {"Host": self.host, **headers, "Content-Length": str(len(body))})
        idle = self._take_idle()
        connection = idle or self._connect()
        timed = self._timed(connection)
        try:
            if len(body) <= _JOINED_BYTES_MAX:
                connection.sendall(head + body)
            else:
                connection.sendall(head)
                connection.sendall(body)
            response = HTTPResponse(timed, method=method)  # type: ignore[arg-type] # makefile is all that it uses
            try:
                response.begin()
                content = response.read()
                stays_open = not response.will_close
            finally:
                response.close()
        except BaseException as error:
            connection.close()
            if idle is not None:
                self.close()
            if isinstance(error, TimeoutError):
                raise NoAnswerError(f'Read timeout on endpoint URL: "{self.origin}"') from error
            if isinstance(error, OSError | HTTPException):
                raise NoAnswerError(
                    f'Connection was closed before we received a valid response from endpoint URL: "{self.origin}".'
                ) from error
            raise
        if stays_open and len(self._idle) < STORAGE_CONNECTIONS_MAX:
            self._idle.append((connection, Moment.now(self._clock)))
        else:
            connection.close()
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)

    def close(self) -> None:
        """Closes the connections that no call uses."""
        while self._idle:
            with suppress(IndexError):  # a call took the last one meanwhile
                self._idle.pop()[0].close()

    def _take_idle(self) -> socket.socket | None:
        """A connection from an earlier call, if one is still open. The latest comes first, so that others can end."""
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            is_young = since.age_ms(self._clock) <= STORAGE_IDLE_CONNECTION_MS_MAX
            if is_young and not _is_readable(connection):
                return connection
            connection.close()  # it may be dead, the service has closed it, or it says what no call asked for

    def _timed(self, connection: socket.socket) -> TimedSocket:
        read_ms = self._timeouts_s[1] * 1_000
        connection.settimeout(self._timeouts_s[1])
        return TimedSocket(connection, Deadline(self._clock, _CALL_TIMEOUTS * read_ms, read_ms))

    def _connect(self) -> socket.socket:
        connect_timeout_s, read_timeout_s = self._timeouts_s
        try:
            connection = socket.create_connection(self._address, connect_timeout_s)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if self._is_secure:
                    connection = trusted().wrap_socket(connection, server_hostname=self._name)
                connection.settimeout(read_timeout_s)
            except BaseException:
                connection.close()
                raise
        except TimeoutError as error:
            raise NeverSentError(f'Connect timeout on endpoint URL: "{self.origin}"') from error
        except OSError as error:
            raise NeverSentError(f'Could not connect to the endpoint URL: "{self.origin}"') from error
        return connection


_trust = threading.Lock()


def trusted() -> ssl.SSLContext:
    """The context of all connections, which trusts botocore's authorities, or those of `AWS_CA_BUNDLE`.

    The first call reads them, which takes as much CPU as tens of requests. Later ones cost nothing.
    """
    with _trust:
        return _trusted(os.environ.get("AWS_CA_BUNDLE") or _authorities())


@cache
def _trusted(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _authorities() -> str:
    found = find_spec("botocore")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("botocore is missing, whose certificates show that AWS is AWS", name="botocore")
    return str(Path(found.origin).parent / "cacert.pem")


def _head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError(f"a header of {method} {target:.100} has a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
