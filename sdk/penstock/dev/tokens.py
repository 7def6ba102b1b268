"""Tokens of `penstock dev`: the server issues and checks them by itself, with a key that it has made (HMAC, RFC 7519).

A stage on AWS takes those of your identity provider, signed with its RSA keys, and checks them in API Gateway.
"""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

ISSUER = "https://dev.penstock.invalid"  # no server has this name
AUDIENCE = "penstock"
LIFETIME_S = 30 * 24 * 3_600
_HEADER = {"alg": "HS256", "typ": "JWT"}


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
