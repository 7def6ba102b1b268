"""The place of API Gateway in front of the handlers: who may call, and the same events and answers.

Every check that needs no body comes first, so a stranger cannot make the server read one. All that is refused here is
answered with 403 and a `message`, as API Gateway does.

Tokens of `penstock dev`: the server issues and checks them by itself, with a key that it has made (HMAC, RFC 7519).

A stage on AWS takes those of your identity provider, signed with its RSA keys, and checks them in API Gateway.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from penstock.http.sigv4 import Claim, Keys, Scope, SignatureRefused, check_signature, read_claim
from penstock_core.errors import PenstockError
from penstock_handlers.router import dispatch
from penstock_service.instance.instance import Instance

JSON_HEADERS = {"Content-Type": "application/json"}
HeaderPairs = Sequence[tuple[str, str]]
ISSUER = "https://dev.penstock.invalid"  # no server has this name
AUDIENCE = "penstock"
LIFETIME_S = 30 * 24 * 3_600
_HEADER = {"alg": "HS256", "typ": "JWT"}


class Answer(NamedTuple):
    """Status, headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Refused(Exception):  # noqa: N818 - it is an answer
    """The request does not come to the handlers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, JSON_HEADERS, json.dumps({"message": message}).encode())


class TokenCaller(NamedTuple):
    """The claims of a token that the server has checked."""

    claims: Mapping[str, str]


class Caller(NamedTuple):
    """The keys that a client signs with, and the principal that it then is."""

    keys: Keys
    principal_arn: str


class TokenRefused(Exception):  # noqa: N818 - it is an answer, 401
    """The request has no token that this server issued, or one that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevTokens:
    """Issues and checks tokens with one secret."""

    secret: str

    def issue(self, subject: str, now_s: float) -> str:
        """A token for the subject."""
        claims = {"iss": ISSUER, "sub": subject, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s) + LIFETIME_S}
        signed = f"{_encoded(_HEADER)}.{_encoded(claims)}"
        return f"{signed}.{self._signature(signed)}"

    def claims(self, token: str, now_s: float) -> dict[str, str]:
        """The claims of a token, as API Gateway passes them on: texts. Raises TokenRefused."""
        signed, _, signature = token.rpartition(".")
        # The signature covers the header. So no token counts that names another algorithm, or none.
        if not token.isascii() or not hmac.compare_digest(self._signature(signed), signature):
            raise TokenRefused("the token is not of this server, or was changed")
        claims: dict[str, Any] = json.loads(_decoded(signed.partition(".")[2]))
        if now_s >= claims["exp"]:
            raise TokenRefused("the token has expired: start the server anew, which issues another")
        return {name: str(value) for name, value in claims.items()}

    def _signature(self, signed: str) -> str:
        return _base64(hmac.new(self.secret.encode(), signed.encode(), hashlib.sha256).digest())


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Lets requests through that one of `callers` signed, and that come from no web page.

    `callers` has them by their access keys. A token of `tokens` stands for a signature.

    `settle` returns once all that the answer may tell of is stored. No answer of the handlers leaves before that.
    """

    instance: Instance
    callers: Mapping[str, Caller]
    scope: Scope
    settle: Callable[[], None]
    tokens: DevTokens | None = None

    def admit(self, target: str, headers: HeaderPairs, now_s: float) -> Claim | TokenCaller:
        """What the request's signature claims, by its headers alone, or whose token it has. Raises Refused.

        A page in a browser sends an Origin that is not ours, which is refused, and there are no CORS headers. The
        endpoint has refused a Host that the page's own DNS names for 127.0.0.1.
        """
        names = [name.lower() for name, _ in headers]
        if "origin" in names or "sec-fetch-site" in names:
            raise Refused(403, "Forbidden: this server answers programs, and no web page (Origin)")
        if not target.startswith("/"):
            raise Refused(403, "Forbidden: the request's target must be a path")
        if not target.isascii():
            raise Refused(400, "Bad Request: percent-encode what is not ASCII in the request's target")
        if (token := _bearer(headers)) is not None:
            return self._token_caller(token, now_s)
        try:
            claim = read_claim(self.scope, headers, now_s)
        except SignatureRefused as refused:
            raise Refused(403, f"Forbidden: {refused}") from refused
        if claim.access_key not in self.callers:
            raise Refused(403, "Forbidden: an access key of another server; ours is in .penstock/local.env")
        return claim

    def _token_caller(self, token: str, now_s: float) -> TokenCaller:
        if self.tokens is None:
            raise Refused(401, "Unauthorized: this server takes no tokens")
        try:
            return TokenCaller(self.tokens.claims(token, now_s))
        except TokenRefused as refused:
            raise Refused(401, f"Unauthorized: {refused}") from refused

    def respond(
        self, claim: Claim | TokenCaller, method: str, target: str, headers: HeaderPairs, body: bytes
    ) -> Answer:
        """The handlers' answer, if the signature is right. Raises Refused. May take as long as a fetch may wait."""
        caller = self._caller(claim, method, target, headers, body)
        path, _, query = target.partition("?")
        parameters, named = _joined(parse_qsl(query, True)), _joined(headers)
        answer = Answer(*dispatch(method, path, parameters, named, body, self.instance, caller))
        try:
            self.settle()
        except PenstockError as error:
            return Answer(error.code.http_status, JSON_HEADERS, json.dumps({"error": error.to_json()}).encode())
        return answer

    def _caller(
        self, claim: Claim | TokenCaller, method: str, target: str, headers: HeaderPairs, body: bytes
    ) -> str | Mapping[str, str]:
        """The ARN, or the claims. Raises Refused if the signature is not that of the whole request."""
        if isinstance(claim, TokenCaller):
            return claim.claims
        caller = self.callers[claim.access_key]
        try:
            check_signature(claim, caller.keys, self.scope, method, target, headers, body)
        except SignatureRefused as refused:
            raise Refused(403, f"Forbidden: {refused}") from refused
        return caller.principal_arn


def _bearer(headers: HeaderPairs) -> str | None:
    """The token of the one Authorization header, None if there is another number of them or another scheme."""
    given = [value.strip() for name, value in headers if name.lower() == "authorization"]
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _joined(pairs: HeaderPairs) -> dict[str, str]:
    """One value per name: API Gateway joins several of them by commas."""
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found
