"""The proof of the caller in a request, for every transport: AWS Signature Version 4, or a token."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote, urlencode

from penstock.configuration import Configuration
from penstock.http.sigv4 import Keys, Scope, signed_at_ms, signed_headers
from penstock.system import wall_clock_ms

SERVICE = "execute-api"
EVENTS_SERVICE = "appsync"
_BEARER = "Bearer "
_REFUSED = 401  # by API Gateway, which has looked at a token
_DENIED = 403  # by AWS, which has looked at a signature, or by the service
_SIGNATURE_AGE_MS_MAX = 60_000  # AWS takes five minutes; an older one may have been refused for its time

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
    shift_ms: int = 0,
) -> SignedRequest:
    """The request, signed now, or with the token of now. `shift_ms` corrects the clock of this machine.

    It hashes the body, and may call for fresh credentials, so it may be slow.

    Raises NotConfiguredError if credentials or token cannot be refreshed.
    """
    url = configuration.url + quote(path)
    if query:
        url += "?" + urlencode(query, quote_via=quote)
    if configuration.tokens is not None:
        own = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        return SignedRequest(url, {**own, "Authorization": f"{_BEARER}{configuration.tokens.current()}"})
    return SignedRequest(url, signed_for(configuration, SERVICE, method, url, headers, body, shift_ms))


def reader_of(configuration: Configuration) -> tuple[str, str]:
    """The service, and the key or the token that proves who the caller is now. It may be slow.

    Raises NotConfiguredError if credentials or token cannot be refreshed.
    """
    if configuration.tokens is not None:
        return configuration.url, f"{_BEARER}{configuration.tokens.current()}"
    return configuration.url, configuration.credentials.get_frozen_credentials().access_key


def is_refusal(status: int) -> bool:
    """True for an answer that may refuse the proof of the caller, so that nothing was done."""
    return status in (_REFUSED, _DENIED)


def shift_to_sign_again(
    configuration: Configuration, signed: SignedRequest, status: int, headers: Mapping[str, str]
) -> int | None:
    """The `shift_ms` for a second try of a refused request, None if signing anew cannot help.

    It helps if there is a newer token, and if the signature was a minute or more off when the answer came. The process
    may have stood still before it sent, or a clock may be wrong. The service's `Date` tells. It may be slow, unless
    `is_refusal` is false.
    """
    if configuration.tokens is not None:
        token = signed.headers["Authorization"].removeprefix(_BEARER)
        return 0 if status == _REFUSED and configuration.tokens.renewed(token) else None
    answered_ms = _date_ms(headers) if status == _DENIED else None
    if answered_ms is None or abs(answered_ms - signed_at_ms(signed.headers)) < _SIGNATURE_AGE_MS_MAX:
        return None
    shift_ms = answered_ms - wall_clock_ms()
    return shift_ms if abs(shift_ms) >= _SIGNATURE_AGE_MS_MAX else 0


def _date_ms(headers: Mapping[str, str]) -> int | None:
    date = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        return int(parsedate_to_datetime(date).timestamp() * 1_000)
    except ValueError:
        return None


def event_headers(configuration: Configuration, host: str, body: bytes) -> dict[str, str]:
    """The headers of a signed `POST https://<host>/event`, as AppSync Events takes them in messages.

    It may be slow, and raises, as `sign`.
    """
    signed = signed_for(configuration, EVENTS_SERVICE, "POST", f"https://{host}/event", _EVENT_HEADERS, body)
    return {"host": host, **signed}


def signed_for(
    configuration: Configuration,
    service: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    shift_ms: int = 0,
) -> dict[str, str]:
    """The headers of a request to a service of AWS, signed now. It may be slow, and raises, as `sign`."""
    # Frozen: key, secret and token of one moment; refreshed here when they are about to expire.
    frozen = configuration.credentials.get_frozen_credentials()
    keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
    scope = Scope(region=configuration.region, service=service)
    return signed_headers(keys, scope, method, url, headers, body, (wall_clock_ms() + shift_ms) / 1_000)
