"""The proof of the caller in a request, for every transport: AWS Signature Version 4, or a token."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from penstock.configuration import Configuration
from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock.system import wall_clock_ms

SERVICE = "execute-api"
EVENTS_SERVICE = "appsync"
_BEARER = "Bearer "
_REFUSED = 401  # by API Gateway, which has looked at a token

# AppSync Events wants these among the signed headers.
_EVENT_HEADERS = {
    "accept": "application/json, text/javascript",
    "content-encoding": "amz-1.0",
    "content-type": "application/json; charset=UTF-8",
}


class SignedRequest(NamedTuple):
    """The URL and the headers to send, with the body: exactly this URL, and at least these headers."""

    url: str
    headers: dict[str, str]


def sign(
    configuration: Configuration,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> SignedRequest:
    """The request, signed now, or with the token of now.

    It hashes the body, and may call for fresh credentials, so it may be slow.

    Raises NotConfiguredError if credentials or token cannot be refreshed.
    """
    url = configuration.url + quote(path)
    if query:
        url += "?" + urlencode(query, quote_via=quote)
    if configuration.tokens is not None:
        own = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        return SignedRequest(url, {**own, "Authorization": f"{_BEARER}{configuration.tokens.current()}"})
    return SignedRequest(url, signed_for(configuration, SERVICE, method, url, headers, body))


def is_refused_token(configuration: Configuration, status: int) -> bool:
    """True if the answer refuses a token that may have been renewed since."""
    return status == _REFUSED and configuration.tokens is not None


def has_newer_token(configuration: Configuration, signed: SignedRequest, status: int) -> bool:
    """True if the answer refuses the request's token, and there is another one since. Then nothing has been done.

    It may be slow, unless `is_refused_token` is false.
    """
    if not is_refused_token(configuration, status) or configuration.tokens is None:
        return False
    return configuration.tokens.renewed(signed.headers["Authorization"].removeprefix(_BEARER))


def event_headers(configuration: Configuration, host: str, body: bytes) -> dict[str, str]:
    """The headers of a signed `POST https://<host>/event`, as AppSync Events takes them in messages.

    It may be slow, and raises, as `sign`.
    """
    signed = signed_for(configuration, EVENTS_SERVICE, "POST", f"https://{host}/event", _EVENT_HEADERS, body)
    return {"host": host, **signed}


def signed_for(
    configuration: Configuration, service: str, method: str, url: str, headers: Mapping[str, str], body: bytes
) -> dict[str, str]:
    """The headers of a request to a service of AWS, signed now. It may be slow, and raises, as `sign`."""
    # Frozen: key, secret and token of one moment; refreshed here when they are about to expire.
    frozen = configuration.credentials.get_frozen_credentials()
    keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
    scope = Scope(region=configuration.region, service=service)
    return signed_headers(keys, scope, method, url, headers, body, wall_clock_ms() / 1_000)
