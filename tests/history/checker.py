"""The check of a whole history: one pass over its lines, and a second one for witnesses if there are anomalies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tests.history.checks.atomicity import Atomicity
from tests.history.checks.commit_order import CommitOrder
from tests.history.checks.group_progress import GroupProgress
from tests.history.checks.lag import Lag, RealTimeLag
from tests.history.checks.poll_order import PollOrder
from tests.history.checks.send_order import SendOrder
from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import (
    Acknowledge,
    AckResult,
    Acquired,
    Commit,
    Copies,
    DeadLetters,
    Handling,
    Poll,
    Send,
    TopicPartition,
    Verb,
)
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation, read_operations
from tests.history.push.figures import PushFigures
from tests.history.push.pushes import Pushes
from tests.history.queue.delays import Delays, Lateness
from tests.history.queue.share_groups import ShareGroups
from tests.history.report import Counts, Report, find_witnesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The anomalies that the workload makes legitimate, and the number of examples."""

    allow_retry_duplicates: bool = False  # idempotence was off
    allow_unseen: bool = False  # no client read to the end
    examples_max: int = 5  # of each kind
    clock_skew_ns: int = 0  # by which the clocks of the service may differ


def check(lines: Iterable[str | bytes], options: Options | None = None) -> Report:
    """Judge a history. The same history gives the same report.

    `check` iterates over `lines` twice if there are anomalies, so pass a list, a `HistoryFile` or the like. It raises
    MalformedHistoryError for the first line that does not follow the format.
    """
    options = options or Options()
    checker = Checker(options)
    for operation in read_operations(lines):
        checker.observe(operation)
    verdict = checker.finish()
    shown = [anomaly for found in verdict.anomalies.values() for anomaly in islice(found, options.examples_max)]
    return Report(
        found={kind: len(found) for kind, found in verdict.anomalies.items()},
        examples=find_witnesses(shown, read_operations(lines)) if shown else (),
        explained=tuple(verdict.explained[: options.examples_max]),
        counts=verdict.counts,
        worst_lag=_worst_first(verdict.lag.worst.values()),
        worst_empty_lag=_worst_first(verdict.lag.worst_empty.values()),
        lateness=verdict.lateness,
        subscriptions=verdict.subscriptions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All anomalies by kind, the worst kind first, and within a kind in order of topic, partition and offset."""

    anomalies: dict[Kind, list[Anomaly]]
    explained: list[Anomaly]
    counts: Counts
    lag: RealTimeLag
    lateness: Lateness
    subscriptions: dict[str, PushFigures]


class Checker:
    """Takes operations in order of their completion, and then judges them once.

    A family of anomalies is a class with `observe(operation)` and `anomalies(...)`. Add a new one to both methods here.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._order = VersionOrder()
        self._ledger = Ledger()
        self._truncations = Truncations()
        self._sends = SendOrder()
        self._polls = PollOrder()
        self._committed = CommitOrder()
        self._groups = GroupProgress()
        self._atomicity = Atomicity()
        self._lag = RealTimeLag()
        self._shares = ShareGroups(clock_skew_ns=options.clock_skew_ns)
        self._pushes = Pushes()
        self._delays = Delays(clock_skew_ns=options.clock_skew_ns)
        self._tally = _Tally()

    def observe(self, operation: Operation) -> None:
        self._tally.observe(operation)
        self._order.observe(operation)
        self._ledger.observe(operation)
        self._truncations.observe(operation)
        self._sends.observe(operation)
        self._polls.observe(operation)
        self._committed.observe(operation)
        self._groups.observe(operation)
        self._atomicity.observe(operation)
        self._lag.observe(operation, self._polls, self._truncations)
        self._shares.observe(operation)
        self._pushes.observe(operation)
        self._delays.observe(operation)

    def finish(self) -> Verdict:
        self._ledger.settle(self._order)
        explained: list[Anomaly] = []
        by_kind: dict[Kind, list[Anomaly]] = {kind: [] for kind in Kind}
        for anomaly in self._anomalies(explained):
            by_kind[anomaly.kind].append(anomaly)
        unseen = len(by_kind[Kind.UNSEEN])
        if self._options.allow_unseen:
            by_kind[Kind.UNSEEN].clear()
        return Verdict(
            anomalies={kind: sorted(found, key=_log_order) for kind, found in by_kind.items() if found},
            explained=sorted(explained, key=_log_order),
            counts=self._tally.counts(retry_duplicates=len(explained), unseen=unseen),
            lag=self._lag,
            lateness=self._delays.lateness(),
            subscriptions=self._pushes.figures(),
        )

    def _anomalies(self, explained: list[Anomaly]) -> Iterator[Anomaly]:
        yield from self._order.inconsistent_offsets()
        for anomaly, copies in self._order.duplicates():
            limit = self._ledger.copies_explained(anomaly.where, anomaly.values[0])
            if self._options.allow_retry_duplicates and copies <= limit:
                explained.append(anomaly)
            else:
                yield anomaly
        was_read_to_end = not self._options.allow_unseen
        yield from self._ledger.anomalies(self._order, self._truncations, was_read_to_end=was_read_to_end)
        yield from self._atomicity.anomalies(self._order, self._ledger)
        yield from self._shares.anomalies(self._order, self._truncations)
        yield from self._pushes.anomalies(self._order, self._truncations)
        yield from self._delays.anomalies(self._order, self._ledger, self._truncations, was_read_to_end=was_read_to_end)
        yield from self._groups.anomalies(self._order, self._ledger, self._truncations)
        yield from self._committed.anomalies()
        yield from self._sends.anomalies(self._order, self._ledger)
        yield from self._polls.anomalies(self._order, self._ledger, self._truncations)


class _Tally:
    def __init__(self) -> None:
        self._operations = self._ok = self._maybe = self._failed = self._polls = self._read = self._commits = 0
        self._deliveries = self._accepts = self._handled = 0
        self._dead_letters: set[tuple[TopicPartition, int]] = set()  # a reader may find one again
        self._copies: set[tuple[TopicPartition, int]] = set()

    def observe(self, operation: Operation) -> None:
        self._operations += 1
        sends = polls = 0
        for op in operation.ops:
            if type(op) is Send:
                sends += 1
            elif type(op) is Poll:
                polls = 1
                self._read += len(op.records)
            elif type(op) is Commit:
                self._commits += operation.is_ok
            elif type(op) is Acquired:
                self._deliveries += len(op.records)
            elif type(op) is Handling:
                self._handled += len(op.records) * operation.is_ok
            elif type(op) is Copies and operation.is_ok:
                self._copies.update((op.where, offset) for offset, _ in op.records)
            elif type(op) is Acknowledge:
                self._accepts += op.verb is Verb.ACCEPT and op.result is AckResult.OK
            elif type(op) is DeadLetters and operation.is_ok:
                self._dead_letters.update((op.where, letter.offset) for letter in op.letters)
        self._polls += polls
        if operation.is_ok:
            self._ok += sends
        elif operation.has_failed:
            self._failed += sends
        else:
            self._maybe += sends

    def counts(self, *, retry_duplicates: int, unseen: int) -> Counts:
        return Counts(
            operations=self._operations,
            sends_acknowledged=self._ok,
            sends_maybe=self._maybe,
            sends_failed=self._failed,
            polls=self._polls,
            records_read=self._read,
            commits=self._commits,
            deliveries=self._deliveries,
            accepts=self._accepts,
            handled=self._handled,
            copies=len(self._copies),
            dead_letters=len(self._dead_letters),
            retry_duplicates=retry_duplicates,
            unseen=unseen,
        )


def _log_order(anomaly: Anomaly) -> tuple[object, ...]:
    return anomaly.where, anomaly.offsets, anomaly.lines, anomaly.text


def _worst_first(lags: Iterable[Lag]) -> tuple[Lag, ...]:
    return tuple(sorted(lags, key=lambda lag: (-lag.lag_ns, lag.where)))
