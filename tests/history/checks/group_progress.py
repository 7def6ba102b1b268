"""The check of the commits that a group's members make under their leases: two-owners, commit-back and group-skip.

The check compares two commits only if one ended before the other began, with nothing but members' commits between. An
operator's reset or deletion separates the commits before it from those after it. Commits that it overlaps are not
judged. A member with a filter may pass over the records that the filter excludes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import Assign, Commit, Poll, Reset, Seek, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation

_NEVER = float("inf")
_SHOWN_OFFSETS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A confirmed commit."""

    offset: int
    epoch: int | None
    process: str
    start_ns: int
    end_ns: int
    line: int


@dataclass(slots=True)
class _Progress:
    """The progress of one group in one partition. `start_offset` is the lowest offset at which a member started."""

    commits: list[_Commit] = field(default_factory=list)
    resets: list[tuple[int, float, int | None]] = field(default_factory=list)  # begin, end, offset
    given: set[int] = field(default_factory=set)
    start_offset: float = _NEVER
    endings: set[str] = field(default_factory=set)  # of members with a filter

    def note_filter(self, ending: str | None) -> None:
        """Note that a member reads only the records whose value ends so; None: that it reads all."""
        if ending is not None:
            self.endings.add(ending)

    def may_pass(self, value: Value) -> bool:
        """Return whether a member may leave the record out, because its filter excludes it."""
        return any(not str(value).endswith(ending) for ending in self.endings)

    def eras(self) -> dict[int, list[_Commit]]:
        """Return the commits by the number of resets that ended before them, without commits that a reset overlaps."""
        eras: dict[int, list[_Commit]] = {}
        for commit in self.commits:
            before = sum(end < commit.start_ns for _, end, _ in self.resets)
            overlaps = any(begin <= commit.end_ns and end >= commit.start_ns for begin, end, _ in self.resets)
            if not overlaps:
                eras.setdefault(before, []).append(commit)
        return eras


class GroupProgress:
    """The commits of every group, the records that its members were given, and their jumps back on purpose."""

    def __init__(self) -> None:
        self._progress: dict[tuple[str, TopicPartition], _Progress] = {}
        self._sought_ns: dict[tuple[str, TopicPartition], list[int]] = {}

    def observe(self, operation: Operation) -> None:
        if operation.has_failed:
            return
        for op in operation.ops:
            if type(op) is Seek:
                self._sought_ns.setdefault((operation.process, op.where), []).append(operation.start_ns)
            elif operation.group is not None:
                if type(op) is Commit and operation.is_ok:
                    self._at(operation.group, op.where).commits.append(_confirmed(operation, op))
                elif type(op) is Reset:
                    end_ns = operation.end_ns if operation.is_ok else _NEVER
                    self._at(operation.group, op.where).resets.append((operation.start_ns, end_ns, op.offset))
                elif type(op) is Poll and not op.records:
                    self._at(operation.group, op.where).note_filter(op.ending)
                elif type(op) is Poll:
                    progress = self._at(operation.group, op.where)
                    progress.note_filter(op.ending)
                    progress.given.update(offset for offset, _ in op.records)
                    progress.start_offset = min(progress.start_offset, op.records[0][0])
                elif type(op) is Assign:
                    for where, position in op.started:
                        if position is not None:
                            progress = self._at(operation.group, where)
                            progress.start_offset = min(progress.start_offset, position)

    def anomalies(self, order: VersionOrder, ledger: Ledger, truncations: Truncations) -> Iterator[Anomaly]:
        """Call `ledger.settle` first."""
        for (group, where), progress in self._progress.items():
            for commits in progress.eras().values():
                leased = [commit for commit in commits if commit.epoch is not None]
                yield from _shared_epochs(group, where, leased)
                yield from self._compared(group, where, leased)
            yield from _skipped(group, where, progress, order, ledger, truncations)

    def _at(self, group: str, where: TopicPartition) -> _Progress:
        return self._progress.setdefault((group, where), _Progress())

    def _compared(self, group: str, where: TopicPartition, commits: list[_Commit]) -> Iterator[Anomaly]:
        """Pair each commit with the highest epoch and the highest offset of the commits that ended before it began."""
        open_commits: list[tuple[int, int]] = []
        newest: _Commit | None = None
        furthest: _Commit | None = None
        by_begin = sorted(commits, key=lambda commit: (commit.start_ns, commit.line))
        for index, commit in enumerate(by_begin):
            while open_commits and open_commits[0][0] < commit.start_ns:
                ended = by_begin[heappop(open_commits)[1]]
                newest = ended if newest is None or (ended.epoch or 0) > (newest.epoch or 0) else newest
                furthest = ended if furthest is None or ended.offset > furthest.offset else furthest
            if newest is not None and (newest.epoch or 0) > (commit.epoch or 0):
                text = (
                    f"{commit.process} committed for group {group} under lease epoch {commit.epoch}, after "
                    f"{newest.process} had under epoch {newest.epoch}"
                )
                yield _found(Kind.TWO_OWNERS, where, text, newest, commit)
            if (
                furthest is not None
                and furthest.offset > commit.offset
                and not self._went_back(where, furthest, commit)
            ):
                text = f"{commit.process} committed {commit.offset} for group {group}, where {furthest.offset} stood"
                yield _found(Kind.COMMIT_BACK, where, text, furthest, commit)
            heappush(open_commits, (commit.end_ns, index))

    def _went_back(self, where: TopicPartition, before: _Commit, after: _Commit) -> bool:
        sought = self._sought_ns.get((after.process, where), ())
        return any(before.start_ns <= sought_ns <= after.end_ns for sought_ns in sought)


def _confirmed(operation: Operation, commit: Commit) -> _Commit:
    return _Commit(
        offset=commit.offset,
        epoch=commit.lease_epoch,
        process=operation.process,
        start_ns=operation.start_ns,
        end_ns=operation.end_ns,
        line=operation.line,
    )


def _shared_epochs(group: str, where: TopicPartition, commits: Iterable[_Commit]) -> Iterator[Anomaly]:
    owners: dict[int | None, _Commit] = {}
    for commit in commits:
        owner = owners.setdefault(commit.epoch, commit)
        if owner.process != commit.process:
            text = f"{owner.process} and {commit.process} committed for group {group} under lease epoch {commit.epoch}"
            yield _found(Kind.TWO_OWNERS, where, text, owner, commit)


def _skipped(
    group: str,
    where: TopicPartition,
    progress: _Progress,
    order: VersionOrder,
    ledger: Ledger,
    truncations: Truncations,
) -> Iterator[Anomaly]:
    """Return the records below the committed offset that no member was given, from the start of the group on."""
    if not progress.commits or progress.start_offset == _NEVER:
        return
    furthest = max(progress.commits, key=lambda commit: commit.offset)
    moved_to = max((offset for _, _, offset in progress.resets if offset is not None), default=0)
    start_offset = max(int(progress.start_offset), moved_to, truncations.start_offset(where))
    value_at = order[where].value_at
    skipped = [
        offset
        for offset in sorted(value_at.keys() - progress.given)
        if start_offset <= offset < furthest.offset
        and not ledger.may_be_missing(where, value_at[offset])
        and not progress.may_pass(value_at[offset])
    ]
    if skipped:
        shown = skipped[:_SHOWN_OFFSETS]
        values: tuple[Value, ...] = tuple(value_at[offset] for offset in shown)
        yield Anomaly(
            kind=Kind.GROUP_SKIP,
            where=where,
            text=f"group {group} committed {furthest.offset}, and no member was given {len(skipped)} known records "
            f"from {skipped[0]} on",
            offsets=tuple(shown),
            values=values,
            lines=(furthest.line,),
        )


def _found(kind: Kind, where: TopicPartition, text: str, first: _Commit, second: _Commit) -> Anomaly:
    return Anomaly(
        kind=kind, where=where, text=text, offsets=(first.offset, second.offset), lines=(first.line, second.line)
    )
