"""Lets MiniStack check the tokens (JWT) of an HTTP API, which it refuses for want of the package `cryptography`.

It knows the rules of a JWT authorizer: issuer, audience, times and scopes. It lacks RSA. This module adds
RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 8.2.2) by the standard library. It imports nothing of Penstock,
because MiniStack's Python runs it.

Sessions of roles that several emulators know, as all regions of AWS know them. A mirror of one local stack calls
another one under a role. Each emulator has an STS of its own, and refuses the keys that the other one made. With
`PENSTOCK_SESSIONS`, a folder, both find them. Each still judges by its own roles and policies.
"""

import base64
import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

_CHECK, _SESSIONS = "_verify_rs256_signature", "_sessions"
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


class SharedSessions(dict[str, Any]):
    """The sessions of an emulator, by access key. Each is also a file of `folder`, which other emulators read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __setitem__(self, access_key: str, session: Any) -> None:
        super().__setitem__(access_key, session)
        unfinished = self._folder / f"{access_key}.new"
        unfinished.write_text(json.dumps(session))
        unfinished.rename(self._folder / access_key)

    def __contains__(self, access_key: object) -> bool:
        return self.get(str(access_key)) is not None

    def get(self, access_key: str, default: Any = None) -> Any:
        """The session of the key, also if another emulator made it."""
        path = self._folder / access_key
        if not super().__contains__(access_key) and access_key.isalnum() and path.is_file():
            super().__setitem__(access_key, json.loads(path.read_text()))
        return super().get(access_key, default)


def share_sessions(sts: ModuleType | Any, folder: str | None) -> None:
    """Changes MiniStack's STS, if there is a folder. Raises RuntimeError if it keeps sessions in another way."""
    if not isinstance(getattr(sts, _SESSIONS, None), dict):
        raise RuntimeError("MiniStack keeps sessions in another way now: look at localstack/token_checks.py")
    if folder:
        setattr(sts, _SESSIONS, SharedSessions(Path(folder)))
