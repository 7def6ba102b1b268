"""The verdict on a run: the history checker's report, and three counts taken without it.

After the faults each reader reads with another zone gone. It must find every record that a producer's future called
acknowledged, at its offset (G1, G2). It must find no record that a future called certainly failed (G3), and no gap
between offsets (G2). Truncated records are excused, up to the highest offset that the operator asked for. Producers are
idempotent, so a record at two offsets is an anomaly, however often it was sent (G4).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.history.__main__ import HistoryFile
from tests.history.checker import Options, check
from tests.history.format import Poll, Truncate
from tests.history.parsing import parse_line
from tests.history.recorder import merge
from tests.history.report import Report

HISTORY = "history.jsonl"
_POLL, _OF_TAIL, _TRUNCATE = b'"f":"poll"', b'"process":"tail"', b'"f":"truncate"'
Where = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict. `violations` are sentences. The run is good if there are none."""

    history: Report
    acknowledged: int
    truncated: int
    failed: int
    unknown: int
    lost: int
    tail_lag_ms: float
    violations: tuple[str, ...]


def judge(folder: Path, readers: Sequence[str]) -> Verdict:
    """Join the histories of `folder` into one, and judge it with the notes next to it.

    `readers` are the readers that read everything at the end.
    """
    histories = sorted(folder.glob("*.history.jsonl"))
    merge(histories, folder / HISTORY)
    report = check(HistoryFile(folder / HISTORY))
    # The lag of the consumer at the tail only: a reader that starts at the beginning lags by design.
    at_tail = [line for line in HistoryFile(folder / HISTORY) if _POLL not in line or _OF_TAIL in line]
    lag = check(at_tail, Options(allow_unseen=True, examples_max=0)).worst_lag
    violations = [f"{kind}: {count:,}" for kind, count in report.found.items()]
    answers = [json.loads(line) for path in sorted(folder.glob("*.acknowledged.jsonl")) for line in path.open()]
    acknowledged = [each for each in answers if each["offset"] is not None]
    failed = {each["value"] for each in answers if each["offset"] is None and not each["maybe_applied"]}
    starts = _log_starts_asked_for(folder / HISTORY)
    kept = [each for each in acknowledged if each["offset"] >= starts.get((each["topic"], each["partition"]), 0)]
    lost: set[str] = set()
    for reader in readers:
        read = _read_by(folder / f"{reader}.history.jsonl")
        missing = {
            each["value"]
            for each in kept
            if read.get((each["topic"], each["partition"]), {}).get(each["offset"]) != each["value"]
        }
        lost |= missing
        if missing:
            violations.append(f"{reader} did not find {len(missing):,} acknowledged records, {min(missing)} among them")
        wrong = failed & {value for values in read.values() for value in values.values()}
        if wrong:
            violations.append(f"{reader} found {len(wrong):,} records that had failed, {min(wrong)} among them")
        for where, values in read.items():
            first = min(values)
            if set(values) != set(range(first, first + len(values))) or first > starts.get(where, 0):
                violations.append(f"{reader} found gaps between the offsets of {where}")
        violations += unread(folder, reader)
    return Verdict(
        history=report,
        acknowledged=len(acknowledged),
        truncated=len(acknowledged) - len(kept),
        failed=len(failed),
        unknown=len(answers) - len(acknowledged) - len(failed),
        lost=len(lost),
        tail_lag_ms=lag[0].lag_ns / 1e6 if lag else 0.0,
        violations=tuple(violations),
    )


def unread(folder: Path, reader: str) -> list[str]:
    """Return a sentence of what the reader has noted that it could not read, or none if there is nothing."""
    noted = folder / f"{reader}.unread.json"
    left = json.loads(noted.read_text()) if noted.exists() else ["anything: it died"]
    return [f"{reader} could not read {', '.join(left)}"] if left else []


def _read_by(history: Path) -> dict[Where, dict[int, str]]:
    """Return the values by partition and offset, as the polls of one history returned them."""
    read: dict[Where, dict[int, str]] = {}
    for op in _polls(history):
        if op.records:
            read.setdefault(op.where, {}).update((offset, str(value)) for offset, value in op.records)
    return read


def _log_starts_asked_for(history: Path) -> dict[Where, int]:
    starts: dict[Where, int] = {}
    for line in HistoryFile(history):
        if _TRUNCATE in line:
            for op in parse_line(1, line).ops:
                if isinstance(op, Truncate):
                    starts[op.where] = max(op.before_offset, starts.get(op.where, 0))
    return starts


def _polls(history: Path) -> Iterator[Poll]:
    with history.open() as lines:
        for number, line in enumerate(lines, start=1):
            yield from (op for op in parse_line(number, line).ops if isinstance(op, Poll))
