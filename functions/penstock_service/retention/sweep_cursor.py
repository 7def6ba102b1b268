"""How far a sweep has come, as it is stored between two runs.

```
{"cutoff_ms": 1700000000000, "since_ms": 1690000000000, "marks": [["hour", "<32 hex>"]], "at": ["orders", 32],
 "folder": ["hour", 472222]}
```
`at` is the first partition that is not marked, and null once all are. Only then may the run sweep by the marks.
`folder` is the first folder of keys that is not swept: the value of its layout, and its number. The hours come first.

A cursor without marks that is at the first partition tells the folder only: its sweep had all marks in memory, and died
with them. A cursor of an earlier release begins a new sweep.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.ids import SegmentId
from penstock_core.storage.keys import KeyLayout
from penstock_service.retention.live_marks import Marks

_FIRST_PARTITION = ("", 0)
_FIRST_FOLDER = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCursor:
    """Segments of `[since_ms, cutoff_ms)` are swept, from `folder` on. `at` is None once every partition is marked.

    `since_ms` is None before the first run has looked. The marks hold for these two times only.
    """

    cutoff_ms: int
    since_ms: int | None = None
    marks: Sequence[Marks] = ()
    at: tuple[str, int] | None = _FIRST_PARTITION
    folder: tuple[str, int] = _FIRST_FOLDER


def encode_cursor(cursor: SweepCursor) -> str:
    """The JSON above."""
    return json.dumps(
        {
            "cutoff_ms": cursor.cutoff_ms,
            "since_ms": cursor.since_ms,
            "marks": [[each.layout.value, each.segment_id.hex()] for each in cursor.marks],
            "at": cursor.at,
            "folder": cursor.folder,
        }
    )


def encode_folder(cursor: SweepCursor) -> str:
    """The JSON of a cursor that tells its folder only, for a sweep whose marks are in memory."""
    return encode_cursor(SweepCursor(cutoff_ms=cursor.cutoff_ms, folder=cursor.folder))


def parse_cursor(text: str | None, cutoff_ms: int, oldest_ms: int) -> SweepCursor:
    """The stored cursor. Without one, or if its cutoff is before `oldest_ms`, a new sweep with this cutoff."""
    fields: Any = None if text is None else json.loads(text)
    if not isinstance(fields, dict) or "folder" not in fields or fields["cutoff_ms"] < oldest_ms:
        return SweepCursor(cutoff_ms=cutoff_ms)
    at = None if fields["at"] is None else (fields["at"][0], fields["at"][1])
    folder = (fields["folder"][0], fields["folder"][1])
    if not fields["marks"] and at == _FIRST_PARTITION:
        return SweepCursor(cutoff_ms=cutoff_ms, folder=folder)
    return SweepCursor(
        cutoff_ms=fields["cutoff_ms"],
        since_ms=fields["since_ms"],
        marks=tuple(
            Marks(layout=KeyLayout(layout), segment_id=SegmentId(bytes.fromhex(name)))
            for layout, name in fields["marks"]
        ),
        at=at,
        folder=folder,
    )
