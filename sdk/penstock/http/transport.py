# Generated from async_transport.py by `python -m tools.unasync`: change that file.
"""One signed request and its answer: the port that everything in the SDK calls through, and its HTTP adapter."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from penstock.configuration import (
    Configuration,
    caller_configuration,
    find_configuration,
    has_functions_alone,
    may_have_functions,
)
from penstock.errors import ConnectionFailedError, NotConfiguredError
from penstock.http.abilities import request_bytes_max_of
from penstock.http.http_message import Response
from penstock.http.named_transport import AUTO, HTTP, LAMBDA, StageChoice, TransportName, chosen_name, module_of
from penstock.http.no_answer import ANSWER_TIMEOUT_S, NoAnswerError, no_answer
from penstock.http.signature import SignedRequest, event_headers, is_refusal, reader_of, shift_to_sign_again, sign
from penstock.tokens import TokenProvider


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


class HttpTransport:
    """HTTPS, signed by AWS Signature Version 4 or with a token, on kept-alive `Connections`.

    The body is hashed and sent without a copy. No retries but of a proof that grew old, and no redirects.
    """

    def __init__(self, configuration: Configuration, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        from penstock.http.connections import Connections

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

    def reader(self) -> Hashable:
        """The caller and the service (abilities.py). It may be slow."""
        return reader_of(self._configuration)

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        self._connections.close()


class StagesTransport:
    """Several stages, of which one takes appends: calls go there (`StageChoice`)."""

    def __init__(self, urls: Sequence[str], transports: Sequence[Transport]) -> None:
        self._choice = StageChoice(urls)
        self._transports = transports
        self.request_bytes_max = min(map(request_bytes_max_of, transports))

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request to the stage that took the last ones. It is not sent again here."""
        at = self._choice.at
        try:
            answer = self._transports[at].call(method, path, query, headers, body)
        except ConnectionFailedError:
            self._choice.failed(at)
            raise
        return self._choice.judged(at, answer)

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        for each in self._transports:
            each.close()


def open_stages(
    url: str | None,
    urls: Sequence[str] | None,
    region: str | None = None,
    transport: Transport | TransportName | None = None,
) -> Transport:
    """The transport of one stage, or of several that mirror one another. Raises NotConfiguredError."""
    if urls is None:
        return open_transport(url, region, transport)
    checked = checked_urls(urls, url, transport)
    return StagesTransport(urls, [open_transport(each, region, transport) for each in checked])


def checked_urls(urls: Sequence[str], url: str | None, transport: Transport | TransportName | None) -> Sequence[str]:
    """The URLs of several stages. Raises NotConfiguredError for none, or with another way to one."""
    if isinstance(urls, str) or not urls or url is not None or not (transport is None or isinstance(transport, str)):
        raise NotConfiguredError(f"urls={urls!r:.200}: give a list of URLs, no url, and no transport but a name")
    return urls


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
    if name == AUTO and has_functions_alone(url):
        name = LAMBDA
    if name not in (HTTP, AUTO):
        module = module_of(name)
        opened: Transport = module.open_transport(region)
        return opened
    configuration = caller_configuration(url, region, token_file)
    http = HttpTransport(configuration)
    if name == HTTP or not may_have_functions(configuration):
        return http
    module = module_of(AUTO)
    around: Transport = module.around(http, configuration)
    return around


def token_transport(token: TokenProvider, url: str | None = None) -> HttpTransport:
    """HTTP with tokens in place of AWS keys, as the argument `transport` of a client. Opens no connection yet.

    `token` is called for the first request, and again a minute before the token ends that it gave. It may be slow, and
    several clients may share it if it is thread-safe. `url` is that of the API for tokens, by default PENSTOCK_URL.
    Raises NotConfiguredError.
    """
    return HttpTransport(find_configuration(url, token=token))
