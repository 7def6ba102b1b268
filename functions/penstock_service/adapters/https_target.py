"""One request to an endpoint whose address a caller of the API chose, and nothing more that such a caller could wish.

- The host is resolved once. All its addresses must be public (`push/public_address.py`), and the connection goes to one
  of those that were checked. So a name cannot change its address between the check and the request (DNS rebinding).
- TLS verifies the certificate for the host's name. Redirects are not followed.
- One deadline holds for connecting, sending and reading together; the resolver has its own. The answer's size is
  bounded, and it is not decoded.

Each request has a connection of its own: an endpoint gets few requests, and a function that was frozen would find its
old connections closed.
"""

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import SplitResult, urlsplit

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import PUSH_ADDRESSES_MAX, PUSH_ANSWER_BYTES_MAX
from penstock_core.push.targets.public_address import Address, Network, check_public, is_within, parse_address
from penstock_core.version import VERSION
from penstock_service.adapters.timed_socket import Deadline, TimedSocket
from penstock_service.ports.runtime import Clock

_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The status, 200 to 599, and the body. The body of a status other than 2xx may be cut."""

    status: int
    body: bytes


def resolve(host: str, port: int) -> Sequence[Address]:
    """The addresses of the host, by the system's resolver. Raises OSError, and UnicodeError for what is no name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [parse_address(str(address[0])) for *_, address in found]


class HttpsEndpoints:
    """Sends requests to endpoints.

    Addresses in `allowed_private` are let through, and may be called without TLS; only the stage `local` gives any.
    `context` replaces the certificates that the system trusts, and `resolver` the system's.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        allowed_private: Sequence[Network] = (),
        context: ssl.SSLContext | None = None,
        resolver: Callable[[str, int], Sequence[Address]] = resolve,
    ) -> None:
        self._clock = clock
        self._allowed_private = tuple(allowed_private)
        self._given_context = context
        self._resolve = resolver

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> HttpAnswer:
        """The endpoint's answer to a POST. See `get`."""
        return self._answer("POST", url, headers, body, timeout_ms)

    def get(self, url: str, headers: Mapping[str, str], timeout_ms: int) -> HttpAnswer:
        """The endpoint's answer, of any status.

        Raises INVALID_CONFIG for an address that is not allowed. Raises STORAGE_UNAVAILABLE if there is no answer, or
        none that can be read; `maybe_applied` tells whether the request may have been sent.
        """
        return self._answer("GET", url, headers, None, timeout_ms)

    def _answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_ms: int
    ) -> HttpAnswer:
        target = urlsplit(url)
        deadline = Deadline(self._clock, timeout_ms)
        sock = self._connected(target, deadline)
        try:
            return _exchange(method, target, TimedSocket(sock, deadline), headers, body)
        except (OSError, HTTPException, _UnreadableError) as error:
            raise _unavailable(target, error, maybe_applied=True) from error
        finally:
            sock.close()

    def check(self, url: str) -> None:
        """Resolves the host, and sends nothing.

        Raises INVALID_CONFIG for a host without addresses, and for an address that is not allowed.
        """
        target = urlsplit(url)
        try:
            self._addresses(target)
        except (OSError, UnicodeError) as error:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"{shown(target.hostname)} has no address: {error}"
            ) from error

    def _addresses(self, target: SplitResult) -> Sequence[Address]:
        host = target.hostname or ""
        addresses = self._resolve(host, _port(target))
        check_public(host, addresses, self._allowed_private)
        if target.scheme != "https" and not all(is_within(each, self._allowed_private) for each in addresses):
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{target.geturl()!r:.200}: give an https:// address")
        return addresses

    def _connected(self, target: SplitResult, deadline: "Deadline") -> socket.socket:
        host, port = target.hostname or "", _port(target)
        try:
            sock = _connect(self._addresses(target)[:PUSH_ADDRESSES_MAX], port, deadline)
            return sock if target.scheme == "http" else self._secured(sock, host, deadline)
        except (OSError, UnicodeError) as error:
            raise _unavailable(target, error, maybe_applied=False) from error

    def _secured(self, sock: socket.socket, host: str, deadline: "Deadline") -> socket.socket:
        try:
            sock.settimeout(deadline.remaining_s())
            return self._context.wrap_socket(sock, server_hostname=host.removesuffix("."))
        except BaseException:
            sock.close()
            raise

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self._given_context or ssl.create_default_context()


class _UnreadableError(Exception):
    """The answer came, but it is too long or not whole."""


def _port(target: SplitResult) -> int:
    return target.port or _PORTS[target.scheme]


def _connect(addresses: Sequence[Address], port: int, deadline: Deadline) -> socket.socket:
    """A connection to the first of the addresses that takes one. Raises OSError."""
    failure = OSError("the host has no address")
    for address in addresses:
        try:
            sock = socket.create_connection((str(address), port), timeout=deadline.remaining_s())
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            failure = error
    raise failure


def _exchange(
    method: str, target: SplitResult, sock: TimedSocket, headers: Mapping[str, str], body: bytes | None
) -> HttpAnswer:
    connection = HTTPConnection(target.netloc)
    connection.sock = sock
    path = f"{target.path or '/'}{'?' if target.query else ''}{target.query}"
    own = {"host": target.netloc, "user-agent": f"penstock/{VERSION}", "connection": "close"}
    connection.request(method, path, body=body, headers={**headers, **own})
    response = connection.getresponse()
    return HttpAnswer(status=response.status, body=_read(response))


def _read(response: HTTPResponse) -> bytes:
    body = response.read(PUSH_ANSWER_BYTES_MAX + 1)
    if len(body) <= PUSH_ANSWER_BYTES_MAX:
        if response.length:
            raise _UnreadableError(f"the answer ended {response.length} bytes before its end")
        return body
    if 200 <= response.status < 300:
        raise _UnreadableError(f"an answer of more than {PUSH_ANSWER_BYTES_MAX:,} bytes")
    return body[:PUSH_ANSWER_BYTES_MAX]


def _unavailable(target: SplitResult, error: Exception, *, maybe_applied: bool) -> PenstockError:
    why = str(error) or type(error).__name__
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"no answer of {target.scheme}://{target.netloc}: {why:.300}",
        maybe_applied=maybe_applied,
    )
