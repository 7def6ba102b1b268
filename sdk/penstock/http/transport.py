"""One signed request and its answer: the port that everything in the SDK calls through, and its HTTP adapter."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from penstock.configuration import Configuration, find_configuration
from penstock.errors import ConnectionFailedError, NotConfiguredError
from penstock.http.connections import Connections, NoAnswerError
from penstock.http.http_message import Response
from penstock.http.named_transport import HTTP, TransportName, chosen_name, module_of
from penstock.http.signature import SignedRequest, event_headers, is_refusal, shift_to_sign_again, sign
from penstock.tokens import TokenProvider, token_of_file
from penstock_core.limits import REQUEST_BYTES_MAX

ANSWER_TIMEOUT_S = 35  # API Gateway ends a call after 30 s


class Transport(Protocol):
    """Carries requests to a Penstock service. Several threads may use one."""

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request and wait for its answer of any status.

        Raises ConnectionFailedError if there is none. Its `maybe_applied` is false if the request was certainly not
        sent.
        """
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...


@runtime_checkable
class EventSigner(Protocol):
    """A transport that can also sign for wake-ups. Without it a consumer waits by long polls."""

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """The headers of a signed `POST https://<host>/event` of AppSync Events. It may ask for fresh credentials."""
        ...


def event_signer(transport: object) -> EventSigner:
    """The transport, if it signs for wake-ups. Raises NotConfiguredError if not."""
    if not isinstance(transport, EventSigner):
        raise NotConfiguredError(f"{type(transport).__name__} signs nothing for wake-ups")
    return transport


def request_bytes_max_of(transport: object) -> int:
    """The bytes of a request that the transport carries. A transport that does not tell is bound as the API is."""
    return int(getattr(transport, "request_bytes_max", REQUEST_BYTES_MAX))


class HttpTransport:
    """HTTPS, signed by AWS Signature Version 4 or with a token, on `Connections`.

    The body is hashed and sent without a copy. No retries but of a proof that grew old, and no redirects.
    """

    def __init__(self, configuration: Configuration, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._configuration = configuration
        self._connections = Connections(timeout_s)

    @property
    def url(self) -> str:
        """The service's URL."""
        return self._configuration.url

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one signed request; once more, signed anew, if it was refused for its time or for an old token."""
        signed = sign(self._configuration, method, path, query, headers, body)
        answer = self._send(signed, method, path, body)
        if not is_refusal(answer.status):
            return answer
        shift_ms = shift_to_sign_again(self._configuration, signed, answer.status, answer.headers)
        if shift_ms is None:
            return answer
        signed = sign(self._configuration, method, path, query, headers, body, shift_ms)
        return self._send(signed, method, path, body)

    def _send(self, signed: SignedRequest, method: str, path: str, body: bytes) -> Response:
        try:
            return self._connections.send(method, signed.url, signed.headers, body)
        except NoAnswerError as error:
            what = f"{method} {path}: {error}"
            raise no_answer(self._configuration, what, maybe_sent=error.maybe_sent) from error.__cause__

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says. Raises NotConfiguredError if the credentials cannot be refreshed."""
        return event_headers(self._configuration, host, body)

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        self._connections.close()


def no_answer(configuration: Configuration, what: str, *, maybe_sent: bool) -> ConnectionFailedError:
    """The error of a call that nothing answered. If it went to the local stack, the error says how to start that."""
    is_down = configuration.is_local and not maybe_sent
    hint = "the local stack is not running: start it with `penstock dev` or `penstock local up`; " if is_down else ""
    return ConnectionFailedError(f"{hint}no answer from {configuration.url} to {what}", maybe_applied=maybe_sent)


def open_transport(
    url: str | None = None,
    region: str | None = None,
    transport: Transport | TransportName | None = None,
    *,
    token_file: str | None = None,
) -> Transport:
    """`transport` if it is one, else the transport of that name, or the configured one (named_transport.py).

    Opens no connection yet. Raises NotConfiguredError.
    """
    if transport is not None and not isinstance(transport, str):
        return transport
    name = chosen_name(transport, url, has_token=token_file is not None)
    if name != HTTP:
        opened: Transport = module_of(name).open_transport(region)
        return opened
    return HttpTransport(caller_configuration(url, region, token_file))


def caller_configuration(url: str | None, region: str | None, token_file: str | None) -> Configuration:
    """The service and the caller of a command. Raises NotConfiguredError."""
    return find_configuration(url, region, token=None if token_file is None else token_of_file(token_file))


def token_transport(token: TokenProvider, url: str | None = None) -> HttpTransport:
    """HTTP with tokens in place of AWS keys, as the argument `transport` of a client. Opens no connection yet.

    `token` is called for the first request, and again a minute before the token ends that it gave. It may be slow, and
    several clients may share it if it is thread-safe. `url` is that of the API for tokens, by default PENSTOCK_URL.
    Raises NotConfiguredError.
    """
    return HttpTransport(find_configuration(url, token=token))
