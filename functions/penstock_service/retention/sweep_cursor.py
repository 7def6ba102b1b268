"""How far a sweep has come, as it is stored between two runs.

A number is the first prefix to sweep, by marks that are still to be made. JSON is a sweep whose marks so far lie in
objects of the archive:

```
{"cutoff_ms": 1700000000000, "since_ms": 1690000000000, "marks": ["<32 hex>"], "at": ["orders", 32], "prefix": 0}
```
`at` is the first partition that is not marked, and null once all are. Only then may the run sweep by the marks.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.ids import SegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCursor:
    """Segments of `[since_ms, cutoff_ms)` are swept, from `prefix` on. `at` is None once every partition is marked.

    `since_ms` is None before the first run has looked. The marks hold for these two times only.
    """

    cutoff_ms: int
    since_ms: int | None = None
    marks: Sequence[SegmentId] = ()
    at: tuple[str, int] | None = ("", 0)
    prefix: int = 0


def encode_cursor(cursor: SweepCursor) -> str:
    """The JSON above."""
    return json.dumps(
        {
            "cutoff_ms": cursor.cutoff_ms,
            "since_ms": cursor.since_ms,
            "marks": [each.hex() for each in cursor.marks],
            "at": cursor.at,
            "prefix": cursor.prefix,
        }
    )


def parse_cursor(text: str | None, cutoff_ms: int, oldest_ms: int) -> SweepCursor:
    """The stored cursor. Without one, or if its cutoff is before `oldest_ms`, a new sweep with this cutoff."""
    if text is None:
        return SweepCursor(cutoff_ms=cutoff_ms)
    if text.isdecimal():
        return SweepCursor(cutoff_ms=cutoff_ms, prefix=int(text))
    fields = json.loads(text)
    if fields["cutoff_ms"] < oldest_ms:
        return SweepCursor(cutoff_ms=cutoff_ms)
    return SweepCursor(
        cutoff_ms=fields["cutoff_ms"],
        since_ms=fields["since_ms"],
        marks=tuple(SegmentId(bytes.fromhex(each)) for each in fields["marks"]),
        at=None if fields["at"] is None else (fields["at"][0], fields["at"][1]),
        prefix=fields["prefix"],
    )
