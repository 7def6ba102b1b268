"""`.penstock/local.env`, by which every client in the folder and below finds the server. Only its owner may read it.

Each other caller of the server has a file of its name next to it.
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock.configuration import LOCAL_ENV
from penstock.system import new_member_id

_PROBE_S = 0.5


class EnvFile:
    """The file of one folder and caller. A server that runs elsewhere may own it: `answering` tells."""

    def __init__(self, folder: Path, caller: str = "local") -> None:
        self.path = (folder / LOCAL_ENV).with_name(f"{caller}.env")

    def answering(self) -> str | None:
        """The URL in the file if something listens there, else None. Connects to this machine only."""
        try:
            lines = self.path.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return None
        url = next((line.partition("=")[2].strip() for line in lines if line.startswith("PENSTOCK_URL=")), "")
        try:
            parts = urlsplit(url)
            if parts.hostname not in ("127.0.0.1", "localhost"):
                return None
            with socket.create_connection(("127.0.0.1", parts.port or 80), timeout=_PROBE_S):
                return url
        except (OSError, ValueError):
            return None

    def write(self, values: Mapping[str, str]) -> None:
        """Replace the file in one step. It is never readable for others, not even for a moment."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.parent.chmod(0o700)
        new = self.path.with_name(f"{self.path.name}.{new_member_id()}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(_text(values))
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)

    def remove(self, values: Mapping[str, str]) -> None:
        """Remove the file if it still says what `write` wrote. Another server may have replaced it."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self.path.read_text() == _text(values):
                self.path.unlink()


def _text(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
