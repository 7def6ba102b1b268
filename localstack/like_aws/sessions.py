"""The sessions of directory buckets: made by CreateSession, bound to one bucket, checked by their signatures."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from localstack.like_aws.exchange import Request

READ_WRITE, READ_ONLY = "ReadWrite", "ReadOnly"
_SESSIONS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Credentials for one bucket until `ends_s`. `mode` is ReadWrite or ReadOnly."""

    bucket: str
    mode: str
    access_key_id: str
    secret_access_key: str
    token: str
    ends_s: float


@dataclass(slots=True)
class Sessions:
    """The sessions that were made and have not ended."""

    _by_token: dict[str, Session] = field(default_factory=dict)

    def make(self, bucket: str, mode: str, now_s: float, session_s: float) -> Session:
        """Makes a session that ends after `session_s`."""
        if len(self._by_token) >= _SESSIONS_MAX:
            self._by_token = {token: each for token, each in self._by_token.items() if each.ends_s > now_s}
        session = Session(
            bucket=bucket,
            mode=mode,
            access_key_id=f"ASIA{secrets.token_hex(8).upper()}",
            secret_access_key=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(48),
            ends_s=now_s + session_s,
        )
        self._by_token[session.token] = session
        return session

    def find(self, token: str) -> Session | None:
        """The session with that token, ended or not."""
        return self._by_token.get(token)


def is_signed_by(session: Session, request: Request) -> bool:
    """True if the request's signature is the session's, and its body has the hash that it names."""
    fields = _fields(request.header("authorization"))
    try:
        access_key_id, date, region, service, _ = fields["Credential"].split("/")
        signed_headers = fields["SignedHeaders"].split(";")
    except (KeyError, ValueError):
        return False
    named = request.header("x-amz-content-sha256")
    if len(named) == 64 and named != hashlib.sha256(request.body).hexdigest():
        return False
    has_token = "x-amz-s3session-token" in signed_headers
    if access_key_id != session.access_key_id or service != "s3express" or not has_token:
        return False
    headers = "".join(f"{name}:{' '.join(request.header(name).split())}\n" for name in signed_headers)
    canonical = "\n".join(
        (request.method, request.raw_path, _canonical_query(request.query), headers, fields["SignedHeaders"], named)
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.header('x-amz-date')}\n{scope}\n{hashed}"
    key = f"AWS4{session.secret_access_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, text.encode(), "sha256").hex()
    return hmac.compare_digest(expected, fields.get("Signature", ""))


def _fields(authorization: str) -> dict[str, str]:
    _, _, rest = authorization.partition(" ")
    return dict(part.strip().partition("=")[::2] for part in rest.split(","))


def _canonical_query(query: Mapping[str, list[str]]) -> str:
    pairs = sorted((_encoded(name), _encoded(value)) for name, values in query.items() for value in values)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
