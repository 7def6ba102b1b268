"""The report of a check: anomalies by kind, the operations that witness them, counts, and lag."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice

from tests.history.checks.lag import Lag
from tests.history.format import (
    Acknowledge,
    Acquired,
    Assign,
    Cancel,
    Commit,
    Committed,
    DeadLetters,
    Disturb,
    Handling,
    MicroOp,
    Poll,
    Reset,
    Schedule,
    Seek,
    Send,
    Subscribe,
    TopicPartition,
    Truncate,
    Value,
)
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.operations import Operation
from tests.history.push.figures import PushFigures
from tests.history.queue.delays import Lateness

WITNESSES_MAX = 8  # for one anomaly
RANGE_SHOWN = 1_000  # offsets of an acknowledgement that are looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of a history: sends by record, polls by operation, and records each time a poll returned them."""

    operations: int = 0
    sends_acknowledged: int = 0
    sends_maybe: int = 0
    sends_failed: int = 0
    polls: int = 0
    records_read: int = 0
    commits: int = 0
    deliveries: int = 0  # of records by share groups
    accepts: int = 0  # acknowledgements of share groups, answered ok
    handled: int = 0  # records by targets of subscriptions, again included
    copies: int = 0  # records in topics that subscriptions copy to
    dead_letters: int = 0
    retry_duplicates: int = 0  # explained by repeated attempts; 0 unless they are allowed
    unseen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """An operation that proves an anomaly. It is in the history from `invoke_line` to `line`."""

    line: int
    invoke_line: int
    process: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    anomaly: Anomaly
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict. `found` counts each kind of anomaly, and `examples` has the first of each in order of the log."""

    found: dict[Kind, int]
    examples: tuple[Example, ...]
    explained: tuple[Anomaly, ...]  # the first duplicates that repeated attempts explain
    counts: Counts
    worst_lag: tuple[Lag, ...]  # one per partition that lagged, the worst first
    worst_empty_lag: tuple[Lag, ...]  # of polls that returned nothing, likewise
    lateness: Lateness  # of delayed records
    subscriptions: dict[str, PushFigures] = field(default_factory=dict)  # by name

    @property
    def is_clean(self) -> bool:
        return not self.found

    def to_json(self) -> dict[str, object]:
        """The report as JSON values."""
        return {
            "is_clean": self.is_clean,
            "anomalies": dict(self.found),
            "examples": [
                {**asdict(example.anomaly), "witnesses": [asdict(witness) for witness in example.witnesses]}
                for example in self.examples
            ],
            "explained": [asdict(anomaly) for anomaly in self.explained],
            "counts": asdict(self.counts),
            "worst_lag": [asdict(lag) for lag in self.worst_lag],
            "worst_empty_lag": [asdict(lag) for lag in self.worst_empty_lag],
            "lateness": asdict(self.lateness),
            "subscriptions": {name: asdict(figures) for name, figures in self.subscriptions.items()},
        }


def find_witnesses(anomalies: Iterable[Anomaly], operations: Iterable[Operation]) -> tuple[Example, ...]:
    """Find the operations that each anomaly names, or that mention one of its offsets or values: at most 8 each."""
    found: list[tuple[Anomaly, list[Witness]]] = [(anomaly, []) for anomaly in anomalies]
    by_line: dict[int, list[int]] = {}
    by_mention: dict[tuple[TopicPartition, Value, str], list[int]] = {}
    for index, (anomaly, _) in enumerate(found):
        for line in anomaly.lines:
            by_line.setdefault(line, []).append(index)
        for offset in anomaly.offsets:
            by_mention.setdefault((anomaly.where, offset, "offset"), []).append(index)
        for value in anomaly.values:
            by_mention.setdefault((anomaly.where, value, "value"), []).append(index)
    for operation in operations:
        indexes = set(by_line.get(operation.line, ()))
        named = set(indexes)
        for mention in _mentions(operation):
            indexes.update(by_mention.get(mention, ()))
        for index in sorted(indexes):
            anomaly, witnesses = found[index]
            reserved = 0 if index in named else sum(line > operation.line for line in set(anomaly.lines))
            if len(witnesses) + reserved < WITNESSES_MAX:
                witnesses.append(_witness(operation, anomaly))
    return tuple(Example(anomaly=anomaly, witnesses=tuple(witnesses)) for anomaly, witnesses in found)


def _mentions(operation: Operation) -> Iterable[tuple[TopicPartition, Value, str]]:
    for op in operation.ops:
        if type(op) is Send:
            yield op.where, op.value, "value"
            if op.offset is not None:
                yield op.where, op.offset, "offset"
        elif type(op) is Poll or type(op) is Acquired or type(op) is Handling:
            for offset, value in op.records:
                yield op.where, offset, "offset"
                yield op.where, value, "value"
        elif type(op) is Acknowledge:
            for start, end in op.ranges or ():
                yield from ((op.where, offset, "offset") for offset in range(start, min(end, start + RANGE_SHOWN)))
        elif type(op) is DeadLetters:
            for letter in op.letters:
                yield letter.origin, letter.origin_offset, "offset"
        elif type(op) is Schedule:
            yield op.where, op.value, "value"


def _witness(operation: Operation, anomaly: Anomaly) -> Witness:
    ops = [text for op in operation.ops if (text := _describe(op, anomaly))]
    text = (
        f"{operation.function} {'never completed' if operation.is_open else operation.outcome}: {'; '.join(ops) or '-'}"
    )
    return Witness(line=operation.line, invoke_line=operation.invoke_line, process=operation.process, text=text)


def _describe(op: MicroOp, anomaly: Anomaly) -> str:
    match op:
        case Send(where, value, offset) if where == anomaly.where:
            is_named = value in anomaly.values or offset in anomaly.offsets
            return f"{value!r} to offset {'?' if offset is None else offset}" if is_named else ""
        case Poll(where, records) if where == anomaly.where:
            return _describe_records(records, anomaly)
        case Commit(where, offset, lease_epoch) if where == anomaly.where:
            return f"commit {offset}" + ("" if lease_epoch is None else f" under lease epoch {lease_epoch}")
        case Reset(where, offset) if where == anomaly.where:
            return f"reset to {offset}"
        case Committed(where, offset) if where == anomaly.where:
            return f"told {offset}"
        case Seek(where, position) if where == anomaly.where:
            return f"to {position}"
        case Truncate(where, before_offset) if where == anomaly.where:
            return f"before {before_offset}"
        case Acquired(where, lock_id, count, left_ms, records) if where == anomaly.where:
            return f"lock {lock_id} for {left_ms} ms, delivery {count}, {_describe_records(records, anomaly)}"
        case Acknowledge(where, lock_id, verb, ranges, result, _) if where == anomaly.where:
            return f"{verb} of lock {lock_id}, {ranges or 'all of it'}: {result or 'not told'}"
        case Handling(where, records, refused) if where == anomaly.where:
            return _describe_records(records, anomaly) + (f", names {list(refused)}" if refused else "")
        case Disturb(why, lasts_ms):
            return f"{why}, for {lasts_ms} ms more"
        case Schedule(where, value, due_ns, id) if where == anomaly.where and value in anomaly.values:
            return f"{value!r} as {id}, due at {due_ns}"
        case DeadLetters(where, letters):
            found = [each for each in letters if each.origin == anomaly.where and each.origin_offset in anomaly.offsets]
            return ", ".join(f"{each.value!r} at {where[0]}/{where[1]} {each.offset}" for each in found)
        case Cancel(_, id):
            return id
        case Assign(kept, started):
            return f"keeps {list(kept)}, starts {list(started)}"
        case Subscribe(topics):
            return ", ".join(topics)
    return ""


def _describe_records(records: tuple[tuple[int, Value], ...], anomaly: Anomaly) -> str:
    named = (
        f"{offset}: {value!r}" for offset, value in records if offset in anomaly.offsets or value in anomaly.values
    )
    span = f"offsets {records[0][0]} to {records[-1][0]} ({len(records)} records)" if records else "nothing"
    shown = ", ".join(islice(named, WITNESSES_MAX))
    return f"{span}, of them {shown}" if shown else span
