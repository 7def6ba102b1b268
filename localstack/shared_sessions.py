"""Sessions of roles that several emulators know, as all regions of AWS know them.

A mirror of one local stack calls another one under a role. Each emulator has an STS of its own, and refuses the keys
that the other one made. With `PENSTOCK_SESSIONS`, a folder, both find them. Each still judges by its own roles and
policies. It imports nothing of Penstock, because MiniStack's Python runs it.
"""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

_SESSIONS = "_sessions"


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
        raise RuntimeError("MiniStack keeps sessions in another way now: look at localstack/shared_sessions.py")
    if folder:
        setattr(sts, _SESSIONS, SharedSessions(Path(folder)))
