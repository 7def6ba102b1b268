"""The facts of a worker's ledger, one in a line: its locks, its handler's records and its calls.

A line is written before the worker goes on, so a killed worker leaves all that it knew. Times are those of the wall
clock, in nanoseconds: workers and service share a machine. The topic has one partition.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

Ranges = tuple[tuple[int, int], ...]  # half-open


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """A lock as an acquire's answer told it. It ends at `ends_ns` at the earliest. `deliveries` counts this one."""

    worker: str
    lock: str
    ranges: Ranges
    deliveries: int
    sent_ns: int
    answered_ns: int
    ends_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The worker's handler got a record."""

    worker: str
    lock: str
    offset: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """An answer to an acknowledgement. `result` is the service's, `UNCLEAR`, or `SENT` before there is one."""

    worker: str
    lock: str
    ranges: Ranges
    verb: str
    result: str
    sent_ns: int
    answered_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that was answered, and what it cost. `records` are those that it locked."""

    worker: str
    call: str
    records: int
    acknowledgements: int
    reads: int
    writes: int
    gets: int


Fact = Took | Handled | Acknowledged | Called
LETS_GO = ("release", "reject")  # verbs that end a lock's hold on records
SENT = "sent"
UNCLEAR = "unclear"  # the answer does not say which of a lock's entries it is for
_KINDS: dict[str, type[Fact]] = {kind.__name__: kind for kind in (Took, Handled, Acknowledged, Called)}


class Ledger:
    """Appends facts to a file, each at once."""

    def __init__(self, path: Path, worker: str) -> None:
        self.worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, facts: Iterable[Fact]) -> None:
        """One write of the operating system, which a kill of this process does not undo."""
        lines = "".join(f"{to_line(fact)}\n" for fact in facts)
        if lines:
            os.write(self._file, lines.encode())


def to_line(fact: Fact) -> str:
    """The fact as JSON in one line."""
    return json.dumps({"fact": type(fact).__name__, **asdict(fact)}, separators=(",", ":"))


def parse_line(line: str) -> Fact:
    """The inverse of `to_line`. Raises KeyError, TypeError or ValueError."""
    found: dict[str, Any] = json.loads(line)
    kind = _KINDS[found.pop("fact")]
    if "ranges" in {field.name for field in fields(kind)}:
        found["ranges"] = tuple((start, end) for start, end in found["ranges"])
    return kind(**found)


def read_ledgers(paths: Iterable[Path]) -> Iterator[Fact]:
    """The facts of all ledgers, each in its order. A line that a kill has cut off is left out."""
    for path in paths:
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield parse_line(line)


def lock_of(client_lock_id: str) -> str:
    """The lock's id without the token behind it, which changes when the lock is renewed."""
    return client_lock_id.partition("~")[0]
