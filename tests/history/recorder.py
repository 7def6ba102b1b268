"""The recorder writes the history of clients, in a simulation or in a run on a real stack.

It is thread-safe: it takes a line's time and writes the line under one lock, so times never fall within a file. You
may kill its process: every line is one unbuffered write, and `invoke` returns only after it. So a client sends nothing
that the history does not know. Several operating system processes write one file each, with different process names,
and `merge` joins the files.
"""

import heapq
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol, Self

from tests.history.format import (
    Acks,
    Function,
    MicroOp,
    Outcome,
)
from tests.history.micro_ops import encode_micro_op


class LineStream(Protocol):
    """A stream that takes lines: a file opened for binary writing without a buffer, or an io.BytesIO."""

    def write(self, line: bytes, /) -> object: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOperation:
    """An operation between its invoke and its completion."""

    process: str
    id: int
    function: Function


class Recorder:
    """Writes the operations of any number of threads to one stream.

    `now_ns` is the monotonic clock that orders the history. If you give `wall_ms`, each line has it too.
    """

    def __init__(
        self,
        stream: LineStream,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._stream = stream
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._ids = count()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Record to a new file; raises FileExistsError if it is there."""
        return cls(path.open("xb", buffering=0), wall_ms=lambda: time.time_ns() // 1_000_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def invoke(
        self,
        process: str,
        function: Function,
        ops: Sequence[MicroOp] = (),
        *,
        acks: Acks | None = None,
        group: str | None = None,
    ) -> OpenOperation:
        """Record the begin of an operation. Call it before anything leaves the client, and name the sends."""
        operation = OpenOperation(process=process, id=next(self._ids), function=function)
        self._write(operation, Outcome.INVOKE, ops, acks=acks, group=group)
        return operation

    def ok(self, operation: OpenOperation, ops: Sequence[MicroOp] = (), *, attempts: int | None = None) -> None:
        """Record success and its results. Without `ops`, those of the invoke count. Give `attempts` if not one."""
        self._write(operation, Outcome.OK, ops, attempts=attempts)

    def fail(self, operation: OpenOperation) -> None:
        """Record that it certainly had no effect and never will: an error whose `maybe_applied` is false."""
        self._write(operation, Outcome.FAIL)

    def maybe(self, operation: OpenOperation, ops: Sequence[MicroOp] = (), *, attempts: int | None = None) -> None:
        """Record an unknown outcome: a time-out, a broken connection, or an error whose `maybe_applied` is true."""
        self._write(operation, Outcome.MAYBE, ops, attempts=attempts)

    def done(self, process: str, function: Function, ops: Sequence[MicroOp], *, group: str | None = None) -> None:
        """Record an operation that took no time in one line: assign, subscribe, seek."""
        operation = OpenOperation(process=process, id=next(self._ids), function=function)
        self._write(operation, Outcome.OK, ops, group=group)

    def _write(self, operation: OpenOperation, outcome: Outcome, ops: Sequence[MicroOp] = (), **facts: object) -> None:
        fields: dict[str, object] = {
            "process": operation.process,
            "id": operation.id,
            "type": outcome,
            "f": operation.function,
        }
        if ops:
            fields["ops"] = [encode_micro_op(op) for op in ops]
        fields.update((name, fact) for name, fact in facts.items() if fact is not None)
        if self._wall_ms is not None:
            fields["wall_ms"] = self._wall_ms()
        rest = json.dumps(fields, separators=(",", ":"))[1:]
        with self._lock:
            self._stream.write(f'{{"time_ns":{self._now_ns()},{rest}\n'.encode())


def merge(paths: Iterable[Path], into: Path) -> None:
    """Join histories by time into a new file, in constant memory. They must use the monotonic clock of one machine.

    A file may end within a line, which its process was writing when it died. `merge` leaves such a line out.
    """
    histories = [_whole_lines(path) for path in paths]
    with into.open("xb") as merged:
        for line in heapq.merge(*histories, key=_time_ns):
            merged.write(line)


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from (line for line in lines if line.endswith(b"\n"))


def _time_ns(line: bytes) -> int:
    return int(json.loads(line)["time_ns"])
