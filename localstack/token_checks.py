"""Lets MiniStack check the tokens (JWT) of an HTTP API, which it refuses for want of the package `cryptography`.

It knows the rules of a JWT authorizer: issuer, audience, times and scopes. It lacks RSA. This module adds
RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 8.2.2) by the standard library. It imports nothing of Penstock,
because MiniStack's Python runs it.
"""

import base64
import hashlib
from types import ModuleType
from typing import Any

_CHECK = "_verify_rs256_signature"
_OURS = "/_aws/execute-api/"
# DigestInfo of SHA-256, without the digest: RFC 8017, section 9.2, note 1.
_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
_BITS_MIN, _BITS_MAX = 2_048, 8_192


def add_token_checks(gateway: ModuleType | Any) -> None:
    """Changes MiniStack's module of API Gateway. Raises RuntimeError if it has no such check: look what has changed."""
    if not hasattr(gateway, _CHECK):
        raise RuntimeError("MiniStack checks tokens in another way now: look at localstack/token_checks.py")
    setattr(gateway, _CHECK, verify_rs256)


def takes_token(gateway: ModuleType | Any, method: str, path: str) -> bool:
    """True if the route of a request wants a token, and not a signature."""
    api_id, slash, route = path.removeprefix(_OURS).partition("/")
    if not path.startswith(_OURS) or not slash:
        return False
    return bool(gateway.route_authorization_type(api_id, "$default", method, f"/{route}") == "JWT")


def verify_rs256(token: str, jwk: dict[str, Any]) -> bool:
    """True if the key has signed the token. Never raises: what it cannot read, nobody has signed."""
    try:
        signed, _, signature_text = token.rpartition(".")
        modulus, exponent = _number(jwk["n"]), _number(jwk["e"])
        signature = _decoded(signature_text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    size = (modulus.bit_length() + 7) // 8
    if not _BITS_MIN <= modulus.bit_length() <= _BITS_MAX or len(signature) != size:
        return False
    number = int.from_bytes(signature, "big")
    info = _DIGEST_INFO + hashlib.sha256(signed.encode()).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(info) - 3) + b"\x00" + info
    return number < modulus and pow(number, exponent, modulus).to_bytes(size, "big") == padded


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
