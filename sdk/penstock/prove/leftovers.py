"""The changes that a run has not put back yet, in a file, so that the next run can do it after a kill.

```
prove.undo.json   {"url": "https://…", "entries": [{"kind": "topic", "name": "penstock-prove-1f…"}, …]}
```
An entry is written before the change that it undoes, and goes after it is undone. Each undoing may run twice: what is
gone already counts as undone. A stage of the run's own is one entry, which takes all others with it. It tells its
account and region, and is removed there only.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError

FILE_NAME = "prove.undo.json"
STACK = "stack"
TOPIC_PREFIX = "penstock-prove-"
STAGE_PREFIX = "prove-"
# The begin of the names that a run gives. A file that names anything else is not believed: undoing deletes.
_PREFIXES = {
    "topic": TOPIC_PREFIX,
    "group": TOPIC_PREFIX,
    "share_group": TOPIC_PREFIX,
    STACK: STAGE_PREFIX,
    "zone": "",  # let in only if a run has taken it out
    "logging": "",
}
Undoing = Callable[[Mapping[str, Any]], None]


class Leftovers:
    """The entries of a stage, by its URL. `undoings` has a function for each kind of entry."""

    def __init__(self, path: Path, url: str, undoings: Mapping[str, Undoing]) -> None:
        self._path, self._url = path, url
        self._undoings = undoings
        self._entries: list[dict[str, Any]] = _read(path, url)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The changes that are not undone yet, the oldest first."""
        return list(self._entries)

    def note(self, kind: str, name: str, **facts: Any) -> None:
        """Note a change before it is made. `undo_all` undoes it, even if the change fails."""
        self._entries.append({"kind": kind, "name": name, **facts})
        self._write()

    def undo(self, kind: str, name: str) -> None:
        """Undo this one entry now."""
        for entry in [each for each in self._entries if (each["kind"], each["name"]) == (kind, name)]:
            self._undo(entry)

    def undo_all(self) -> list[str]:
        """Undo all, the newest first. Returns what could not be undone, with the reason: it stays in the file.

        Where a stage of the run's own is among it, only that is undone.
        """
        failures = []
        for entry in [each for each in self.entries if each["kind"] == STACK] or reversed(self.entries):
            try:
                self._undo(entry)
            except Exception as error:  # the runner's edge: one failure must not keep the others from being undone
                failures.append(f"{entry['kind']} {entry['name']}: {error}")
        return failures

    def _undo(self, entry: dict[str, Any]) -> None:
        self._undoings[entry["kind"]](entry)
        if entry["kind"] == STACK:
            self._entries.clear()
        else:
            self._entries.remove(entry)
        self._write()

    def _write(self) -> None:
        if not self._entries:
            self._path.unlink(missing_ok=True)
            return
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump({"url": self._url, "entries": self._entries}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


def _read(path: Path, url: str) -> list[dict[str, Any]]:
    """The entries of an earlier run. Raises INVALID_CONFIG for a file of another stage, and for one that is none."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text())
        entries, of_url = [dict(each) for each in found["entries"]], str(found["url"])
        if wrong := [each for each in entries if not each["name"].startswith(_PREFIXES[each["kind"]])]:
            raise ValueError(f"it names {wrong[0]['kind']} {wrong[0]['name']!r:.100}, which no run has made")
        stacks = [each for each in entries if each["kind"] == STACK]
        if [each for each in stacks if not {"account", "region", "profile"} <= each.keys()]:
            raise ValueError("it does not tell the account and region of its stack")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{path} is no file of `penstock prove`, move it away: {error}"
        ) from error
    if stacks:
        return stacks
    if of_url != url:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{path} has what a run left behind at {of_url}: run `penstock prove --url {of_url}` in this folder first, "
            "which removes it, or give --out another folder",
        )
    return entries
