"""Which hours a run counts, and the note that it leaves for the next."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.analysis.hourly import hour_text
from penstock_spark.analysis.measure import HOUR_MS, Window
from penstock_spark.result_store import ResultStore

RUNS = "runs/"
LAST, EARLIEST, NOW = "last", "earliest", "now"
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a run that ended well leaves: all hours before `complete_to_ms` are counted, with records as late as the
    run allowed. `topics` are those that it was for, empty if for all."""

    run: str
    from_ms: int
    to_ms: int
    complete_to_ms: int
    topics: tuple[str, ...] = ()


def last_complete(results: ResultStore, topics: Sequence[str]) -> int:
    """Up to where all runs together have counted each of these topics, or all topics if none is named; 0 if they have
    not. What a run counted of some topics makes nothing complete of the others."""
    complete: dict[str, int] = dict.fromkeys(topics, 0)
    complete_of_all = 0
    for name in results.names(RUNS):
        note = json.loads(results.get(RUNS + name) or b"{}")
        complete_to_ms = int(note.get("complete_to_ms", 0))
        if not note.get("topics"):
            complete_of_all = max(complete_of_all, complete_to_ms)
        for topic in complete.keys() & set(note.get("topics", ())):
            complete[topic] = max(complete[topic], complete_to_ms)
    return max(complete_of_all, min(complete.values(), default=0))


def choose_window(from_text: str, to_text: str, *, complete_to_ms: int, now_ms: int) -> Window:
    """The window that the options mean. Raises INVALID_REQUEST if they are no hours, or the wrong way round."""
    starts = {LAST: complete_to_ms, EARLIEST: 0}
    from_ms = starts[from_text] if from_text in starts else parse_hour(from_text)
    to_ms = now_ms if to_text == NOW else min(parse_hour(to_text), now_ms)
    if from_ms >= to_ms:
        last = f" ({hour_text(complete_to_ms)})" if from_text == LAST else ""
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"--from {from_text}{last} --to {to_text}: nothing lies between them, up to now"
        )
    return Window(from_ms=from_ms, to_ms=to_ms)


def parse_hour(text: str) -> int:
    """Milliseconds since 1970 of `2026-11-21` or `2026-11-21T14`, in UTC. Raises INVALID_REQUEST."""
    for each in _FORMATS:
        try:
            return int(datetime.strptime(text, each).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    raise PenstockError(
        ErrorCode.INVALID_REQUEST, f"{text!r} is no hour: write a day (2026-11-21) or an hour (2026-11-21T14), in UTC"
    )


def note_run(
    results: ResultStore,
    run: str,
    window: Window,
    *,
    topics: Sequence[str],
    complete_to_ms: int,
    now_ms: int,
    late_ms: int,
) -> Note:
    """Leaves the note of a run whose files are all written.

    The hours that may still get records are not complete, so the next run counts them again. A run that left out hours
    behind the complete ones does not make those complete.
    """
    reached = min(window.to_ms, now_ms - late_ms) // HOUR_MS * HOUR_MS
    is_joined = window.from_ms <= complete_to_ms
    note = Note(
        run=run,
        from_ms=window.from_ms,
        to_ms=window.to_ms,
        complete_to_ms=max(complete_to_ms, reached) if is_joined else complete_to_ms,
        topics=tuple(topics),
    )
    results.put(f"{RUNS}run={run}.json", json.dumps(asdict(note)).encode())
    return note
