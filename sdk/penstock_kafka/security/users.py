"""The users of a gateway: a file of `NAME:PASSWORD` lines that only its owner may read.

The server's side of TLS.

SaslHandshake and SaslAuthenticate, by the mechanism PLAIN (RFC 4616).

A client that fails waits a second for the answer, and its connection ends: guessing is slow.
"""

import asyncio
import hashlib
import hmac
import os
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path

from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError

_FILE_BYTES_MAX = 1_000_000
_PASSWORD_LENGTH_MIN = 12
_PASSWORD_BYTES_MAX = 1_024
_SALT_BYTES = 16
_ITERATIONS = 1_000  # against a look at the memory; the file itself holds the passwords
MECHANISM = "PLAIN"
_FAILURE_PAUSE_S = 1.0
_PARTS = 3  # authorization id, name, password


class UsersFileError(Exception):
    """The file of users cannot be used. The message says why, and never a password."""


class Users:
    """Names and hashes of passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._salt = os.urandom(_SALT_BYTES)
        self._hashes = {name: self._hash(password) for name, password in passwords.items()}
        self._nobody = self._hash("")

    def has(self, name: str, password: str) -> bool:
        """True if this is the user's password. It takes as long for names that are unknown."""
        known = self._hashes.get(name, self._nobody)
        return hmac.compare_digest(known, self._hash(password)) and name in self._hashes

    def _hash(self, password: str) -> bytes:
        return hashlib.pbkdf2_hmac("sha256", password.encode()[:_PASSWORD_BYTES_MAX], self._salt, _ITERATIONS)


def read_users(path: Path) -> Users:
    """The users of a file. Raises UsersFileError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsersFileError(f"{path} may be read by others: chmod 600 {path}")
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsersFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise UsersFileError(f"{path} has more than {_FILE_BYTES_MAX:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsersFileError(f"{path} is not UTF-8") from None
    return Users(_passwords(path, text))


def _passwords(path: Path, text: str) -> dict[str, str]:
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or name in passwords:
            raise UsersFileError(f"{path}, line {number}: give NAME:PASSWORD, and each name once")
        if len(password) < _PASSWORD_LENGTH_MIN or "\0" in line:
            raise UsersFileError(f"{path}, line {number}: a password has {_PASSWORD_LENGTH_MIN} characters or more")
        passwords[name] = password
    if not passwords:
        raise UsersFileError(f"{path} has no users: give NAME:PASSWORD lines")
    return passwords


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, with a certificate chain and its key in PEM. Raises OSError (ssl.SSLError is one)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


class Sasl:
    """Lets users in."""

    def __init__(self, users: Users, *, failure_pause_s: float = _FAILURE_PAUSE_S) -> None:
        self._users = users
        self._failure_pause_s = failure_pause_s

    async def handshake(self, call: Call) -> Answer:
        """SaslHandshake: the mechanism."""
        known = call.request.mechanism == MECHANISM
        return {
            "error_code": KafkaError.none if known else KafkaError.unsupported_sasl_mechanism,
            "mechanisms": [MECHANISM],
        }

    async def authenticate(self, call: Call) -> Answer:
        """SaslAuthenticate: the name and the password."""
        name = self._user(call.request.auth_bytes)
        if name is None or call.peer.principal is not None:
            await asyncio.sleep(self._failure_pause_s)
            call.peer.is_refused = True
            return {
                "error_code": KafkaError.sasl_authentication_failed,
                "error_message": "the name or the password is wrong",
            }
        call.peer.principal = name
        return {"error_code": KafkaError.none, "auth_bytes": b""}

    def _user(self, data: bytes) -> str | None:
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            return None
        if len(parts) != _PARTS or parts[0] not in ("", parts[1]):
            return None
        return parts[1] if self._users.has(parts[1], parts[2]) else None
