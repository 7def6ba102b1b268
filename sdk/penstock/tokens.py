"""Tokens (JWT) in place of AWS keys: where a client takes them from, and when it takes the next one.

A token is sent as `Authorization: Bearer`, to the API for tokens only (docs/how-to/jwt.md). The client never checks it:
API Gateway does. It reads `exp`, so that it asks for the next token before this one ends.
"""

import base64
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.errors import NotConfiguredError
from penstock.system import wall_clock_ms
from penstock_core.limits import SDK_TOKEN_AGE_MS_MAX, SDK_TOKEN_LENGTH_MAX, SDK_TOKEN_RENEW_MS

TOKEN = "PENSTOCK_TOKEN"  # noqa: S105 - the name of an environment variable
TOKEN_FILE = "PENSTOCK_TOKEN_FILE"  # noqa: S105 - as above

TokenProvider = Callable[[], str]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)  # RFC 6750: nothing that could end a header


class BearerTokens:
    """The token of the moment. Several threads may use one. `provider` may be slow: it may ask an issuer.

    A token is used until `SDK_TOKEN_RENEW_MS` before its end, or until half of its time if that is later. One that
    tells no end is used for `SDK_TOKEN_AGE_MS_MAX`.
    """

    def __init__(self, provider: TokenProvider, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._provider = provider
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._token = ""
        self._until_ms = 0

    def current(self) -> str:
        """The token to send now. Raises NotConfiguredError if the provider gives none."""
        with self._lock:
            if self._now_ms() >= self._until_ms:
                self._take()
            return self._token

    def renewed(self, refused: str) -> bool:
        """After the service has refused a token: True if there is another one to try. Raises as `current`."""
        with self._lock:
            if self._token == refused:
                self._take()
            return self._token != refused

    def _take(self) -> None:
        try:
            token = self._provider()
        except NotConfiguredError:
            raise
        except Exception as error:  # a callback of the application
            raise NotConfiguredError(f"the token provider failed: {type(error).__name__}: {error}") from error
        token = token.strip() if isinstance(token, str) else ""
        if len(token) > SDK_TOKEN_LENGTH_MAX or not _TOKEN.fullmatch(token):
            raise NotConfiguredError(
                f"the token provider gave no token: give 1 to {SDK_TOKEN_LENGTH_MAX:,} characters of A-Z a-z 0-9 . _ ~ "
                "+ / = -, without `Bearer`"
            )
        now_ms = self._now_ms()
        end_ms = expiry_ms(token)
        self._token = token
        self._until_ms = (
            now_ms + SDK_TOKEN_AGE_MS_MAX
            if end_ms is None
            else max(end_ms - SDK_TOKEN_RENEW_MS, now_ms + (end_ms - now_ms) // 2)
        )


def token_of_file(path: str | Path) -> TokenProvider:
    """A provider that reads a file, which another program renews, as Kubernetes does with projected tokens."""

    def read() -> str:
        try:
            with open(path, encoding="ascii") as file:
                return file.read(SDK_TOKEN_LENGTH_MAX + 2)
        except (OSError, UnicodeDecodeError) as error:
            raise NotConfiguredError(f"the token file {str(path)!r:.300} cannot be read: {error}") from error

    return read


def token_of_variable(name: str = TOKEN) -> TokenProvider:
    """A provider that reads an environment variable."""

    def read() -> str:
        if name not in os.environ:
            raise NotConfiguredError(f"{name} is not set any more")
        return os.environ[name]

    return read


def expiry_ms(token: str) -> int | None:
    """The end of a token in milliseconds since 1970, None if it tells none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end_s = claims["exp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return int(end_s * 1_000) if isinstance(end_s, int | float) and 0 < end_s < 1e11 else None
