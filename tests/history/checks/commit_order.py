"""The check of committed offsets that a group reads back: wrong-committed.

A read may return any commit that may have been the newest at some moment of the read. Such a commit took effect, or may
have. And no confirmed commit began after its end and ended before the read began. A maybe has no end: it may take
effect at any later time. An operator's reset is a commit too, perhaps to nothing.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from tests.history.format import Commit, Committed, Reset, TopicPartition
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.operations import Operation

_NEVER = float("inf")


@dataclass(slots=True)
class _Commits:
    """The commits of one group for one partition."""

    times: dict[int | None, list[tuple[int, float]]] = field(default_factory=dict)  # by offset: begin, end
    confirmed: list[tuple[int, int]] = field(default_factory=list)  # end, begin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    group: str
    committed: Committed
    start_ns: int
    end_ns: int
    line: int


class CommitOrder:
    """Commits and the offsets that were read back, by group and partition."""

    def __init__(self) -> None:
        self._commits: dict[tuple[str, TopicPartition], _Commits] = {}
        self._reads: list[_Read] = []

    def observe(self, operation: Operation) -> None:
        if operation.group is None or operation.has_failed:
            return
        for op in operation.ops:
            if type(op) is Commit or type(op) is Reset:
                commits = self._commits.setdefault((operation.group, op.where), _Commits())
                end_ns = operation.end_ns if operation.is_ok else _NEVER
                commits.times.setdefault(op.offset, []).append((operation.start_ns, end_ns))
                if operation.is_ok:
                    commits.confirmed.append((operation.end_ns, operation.start_ns))
            elif type(op) is Committed and operation.is_ok:
                read = _Read(
                    group=operation.group,
                    committed=op,
                    start_ns=operation.start_ns,
                    end_ns=operation.end_ns,
                    line=operation.line,
                )
                self._reads.append(read)

    def anomalies(self) -> Iterator[Anomaly]:
        begins = {}
        for where, commits in self._commits.items():
            commits.confirmed.sort()
            begins[where] = list(accumulate((begin for _, begin in commits.confirmed), max))
        for read in self._reads:
            where = (read.group, read.committed.where)
            commits = self._commits.get(where, _Commits())
            before = bisect_left(commits.confirmed, (read.start_ns, -1))
            latest_ns = begins[where][before - 1] if before else -1
            if not _may_be(read, commits, latest_ns):
                yield Anomaly(
                    kind=Kind.WRONG_COMMITTED,
                    where=read.committed.where,
                    text=f"group {read.group} was told {read.committed.offset}, which it never committed, or has since "
                    "committed over",
                    offsets=() if read.committed.offset is None else (read.committed.offset,),
                    lines=(read.line,),
                )


def _may_be(read: _Read, commits: _Commits, latest_ns: int) -> bool:
    """`latest_ns` is the begin of the last commit that was confirmed before the read began, or -1."""
    if read.committed.offset is None and latest_ns < 0:
        return True
    return any(
        start_ns <= read.end_ns and end_ns >= latest_ns
        for start_ns, end_ns in commits.times.get(read.committed.offset, ())
    )
