"""The users of a gateway: a file of `NAME:PASSWORD` lines that only its owner may read."""

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path

_FILE_BYTES_MAX = 1_000_000
_PASSWORD_LENGTH_MIN = 12
_PASSWORD_BYTES_MAX = 1_024
_SALT_BYTES = 16
_ITERATIONS = 1_000  # against a look at the memory; the file itself holds the passwords


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
