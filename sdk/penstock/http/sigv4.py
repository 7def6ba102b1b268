"""AWS Signature Version 4 of an HTTP request: made for a client, and checked for a server.

This file needs the standard library only, and no other module of Penstock, so that any program may load it.

```
canonical request  method, path, query, headers that are signed, their names, SHA-256 of the body
string to sign     "AWS4-HMAC-SHA256", the time, the scope, SHA-256 of the canonical request
scope              date/region/service/aws4_request
key                HMAC of date, region, service and "aws4_request" in turn, begun with "AWS4" + secret
signature          HMAC of the string to sign
```
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCK_SKEW_S_MAX = 300  # as API Gateway

_TIME = "%Y%m%dT%H%M%SZ"
_AUTHORIZATION = re.compile(
    re.escape(ALGORITHM)
    + r" +Credential=([^\s,/]{1,128})/(\d{8})/([a-z0-9-]{1,40})/([a-z0-9-]{1,40})/aws4_request *,"
    + r" *SignedHeaders=([a-z0-9;_.-]{1,4000}) *, *Signature=([0-9a-f]{64})",
    re.ASCII,
)
_TIMESTAMP = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
# Proxies and clients change these on the way, so a signature must not cover them.
_UNSIGNED = frozenset(["authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"])


class Keys(NamedTuple):
    """An access key. `token` is the session token of temporary keys."""

    access_key: str
    secret_key: str
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The service and the region that a signature is good for."""

    region: str
    service: str


class SignatureRefused(Exception):  # noqa: N818 - it is an answer, 403
    """The request is not signed as it must be. The message says why, and repeats nothing that is secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The contents of an Authorization header, not yet checked against the request's body."""

    access_key: str
    signed_headers: tuple[str, ...]
    signature: str
    time: str

    @property
    def date(self) -> str:
        """The day of the signature, as the scope has it."""
        return self.time[:8]


def signed_headers(
    keys: Keys, scope: Scope, method: str, url: str, headers: Mapping[str, str], body: bytes, now_s: float
) -> dict[str, str]:
    """The headers of a request to `url`, with those of its signature. `url` must be percent-encoded already."""
    host, path, query = _split(url)
    time = datetime.fromtimestamp(now_s, UTC).strftime(_TIME)
    sent = {name: value for name, value in headers.items() if name.lower() not in _replaced(keys)}
    sent["X-Amz-Date"] = time
    if keys.token:
        sent["X-Amz-Security-Token"] = keys.token
    covered = {name.lower(): value for name, value in sent.items() if name.lower() not in _UNSIGNED}
    covered.setdefault("host", host)
    names = sorted(covered)
    canonical = _canonical(
        method, path, query, [(name, covered[name]) for name in names], hashlib.sha256(body).hexdigest()
    )
    signature = _signature(keys.secret_key, scope, time, canonical)
    sent["Authorization"] = (
        f"{ALGORITHM} Credential={keys.access_key}/{time[:8]}/{scope.region}/{scope.service}/aws4_request, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return sent


def signed_at_ms(headers: Mapping[str, str]) -> int:
    """When these headers of `signed_headers` were signed, milliseconds since 1970."""
    return int(datetime.strptime(headers["X-Amz-Date"], _TIME).replace(tzinfo=UTC).timestamp() * 1_000)


def read_claim(scope: Scope, headers: Sequence[tuple[str, str]], now_s: float) -> Claim:
    """The claim of a request's headers, the part that can be checked before the body has come.

    Raises SignatureRefused unless there is one Authorization header of this algorithm, for this scope, of a time near
    `now_s`, that covers the host and each X-Amz header.
    """
    authorization = _only("Authorization", headers)
    match = _AUTHORIZATION.fullmatch(authorization.strip())
    if match is None:
        raise SignatureRefused(
            f"the Authorization header is not '{ALGORITHM} Credential=…, SignedHeaders=…, Signature=…'"
        )
    access_key, date, region, service, names, signature = match.groups()
    if (region, service) != (scope.region, scope.service):
        raise SignatureRefused(
            f"the credential is scoped to {region}/{service}: sign for {scope.region}/{scope.service}"
        )
    time = _only("X-Amz-Date", headers).strip()
    if not _TIMESTAMP.fullmatch(time) or time[:8] != date:
        raise SignatureRefused("X-Amz-Date is not a time such as 20261122T130000Z on the date of the credential")
    try:
        signed_s = datetime.strptime(time, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise SignatureRefused("X-Amz-Date is no time that exists") from None
    if abs(signed_s - now_s) > CLOCK_SKEW_S_MAX:
        raise SignatureRefused(f"signed at {time}: the signature has expired, or the clock of one side is wrong")
    signed = tuple(names.split(";"))
    if list(signed) != sorted(set(signed)):
        raise SignatureRefused("SignedHeaders are not sorted and unique")
    must = {name.lower() for name, _ in headers if name.lower().startswith("x-amz-")} | {"host"}
    if not must <= set(signed):
        raise SignatureRefused(f"the signature does not cover {', '.join(sorted(must - set(signed)))[:100]}")
    return Claim(access_key=access_key, signed_headers=signed, signature=signature, time=time)


def check_signature(
    claim: Claim, keys: Keys, scope: Scope, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
) -> None:
    """Check a claim against the whole request. `target` is path and query as they came.

    Raises SignatureRefused if a signed header is missing, the body is not the announced one, or the signature differs.
    """
    by_name: dict[str, list[str]] = {}
    for name, value in headers:
        by_name.setdefault(name.lower(), []).append(value)
    missing = [name for name in claim.signed_headers if name not in by_name]
    if missing:
        raise SignatureRefused(f"the request has no header {missing[0][:100]}, which its signature covers")
    if by_name.get("x-amz-security-token", [keys.token]) != [keys.token]:
        raise SignatureRefused("the session token is not the one of this key")
    digest = hashlib.sha256(body).hexdigest()
    if by_name.get("x-amz-content-sha256", [digest]) != [digest]:
        raise SignatureRefused("X-Amz-Content-Sha256 is not the SHA-256 of the body")
    path, _, query = target.partition("?")
    covered = [(name, ",".join(by_name[name])) for name in claim.signed_headers]
    expected = _signature(keys.secret_key, scope, claim.time, _canonical(method, path, query, covered, digest))
    if not hmac.compare_digest(expected, claim.signature):
        raise SignatureRefused(
            "the signature does not match: check the secret key, and that nothing changed on the way"
        )


def _replaced(keys: Keys) -> frozenset[str]:
    names = {"authorization", "x-amz-date", "x-amz-security-token" if keys.token else ""}
    return frozenset(names)


def _only(name: str, headers: Iterable[tuple[str, str]]) -> str:
    values = [value for each, value in headers if each.lower() == name.lower()]
    if len(values) != 1:
        raise SignatureRefused(f"{len(values)} {name} headers: send exactly one, signed by {ALGORITHM}")
    return values[0]


def _split(url: str) -> tuple[str, str, str]:
    """Host, path and query of an absolute URL. The default port of its scheme is no part of the host."""
    scheme, _, rest = url.partition("://")
    authority, slash, target = rest.partition("/")
    path, _, query = (slash + target).partition("?")
    host = authority.rpartition("@")[2]
    default_port = {"http": ":80", "https": ":443"}.get(scheme.lower(), "")
    return host.removesuffix(default_port).lower() if default_port else host.lower(), path or "/", query


def _canonical(method: str, path: str, query: str, headers: Sequence[tuple[str, str]], digest: str) -> str:
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in headers)
    names = ";".join(name for name, _ in headers)
    return f"{method}\n{_canonical_path(path)}\n{_canonical_query(query)}\n{lines}\n{names}\n{digest}"


def _canonical_path(path: str) -> str:
    """The path without dot segments and empty ones, encoded once more than it travels."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    ending = "/" if kept and path.endswith("/") else ""
    return quote("/" + "/".join(kept) + ending, safe="/-_.~")


def _canonical_query(query: str) -> str:
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    encoded = sorted((_encoded(name), _encoded(value)) for name, _, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)


def _encoded(text: str) -> str:
    return quote(unquote(text, errors="surrogateescape"), safe="-_.~", errors="surrogateescape")


def _signature(secret: str, scope: Scope, time: str, canonical: str) -> str:
    parts = (time[:8], scope.region, scope.service, "aws4_request")
    text = f"{ALGORITHM}\n{time}\n{'/'.join(parts)}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + secret.encode()
    for part in (*parts, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()
