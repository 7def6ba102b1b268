"""The runs of `analyze`: the hours that a run counts, and the note that it leaves for the next run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.analysis.hourly import hour_text
from penstock_spark.analysis.measure import HOUR_MS, TimeWindow
from penstock_spark.result_store import ResultStore

RUNS = "runs/"
LAST, EARLIEST, NOW = "last", "earliest", "now"
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """The note of a successful run.

    All hours before `complete_to_ms` are counted, with the late records that the run allowed for. `topics` are the
    topics of the run, empty for all.
    """

    run: str
    from_ms: int
    to_ms: int
    complete_to_ms: int
    topics: tuple[str, ...] = ()


def last_complete(results: ResultStore, topics: Sequence[str]) -> int:
    """The time up to which all runs together have counted each of these topics, or all topics if you name none.

    0 without a run.

    A run over some topics completes nothing for the other topics.
    """
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


def choose_window(from_text: str, to_text: str, *, complete_to_ms: int, now_ms: int) -> TimeWindow:
    """The window that the options mean. Raises INVALID_REQUEST for texts that are no hours, and for an empty window."""
    starts = {LAST: complete_to_ms, EARLIEST: 0}
    from_ms = starts[from_text] if from_text in starts else parse_hour(from_text)
    to_ms = now_ms if to_text == NOW else min(parse_hour(to_text), now_ms)
    if from_ms >= to_ms:
        last = f" ({hour_text(complete_to_ms)})" if from_text == LAST else ""
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"--from {from_text}{last} --to {to_text}: nothing lies between them, up to now"
        )
    return TimeWindow(from_ms=from_ms, to_ms=to_ms)


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
    window: TimeWindow,
    *,
    topics: Sequence[str],
    complete_to_ms: int,
    now_ms: int,
    late_ms: int,
    is_complete: bool = True,
) -> RunNote:
    """Leave the note of a run whose files are all written. It completes no hour if a topic of it failed.

    Hours that may still get records are not complete, so the next run counts them again. A run that skips hours after
    the complete ones does not complete the skipped hours.
    """
    reached = min(window.to_ms, now_ms - late_ms) // HOUR_MS * HOUR_MS
    is_joined = is_complete and window.from_ms <= complete_to_ms
    note = RunNote(
        run=run,
        from_ms=window.from_ms,
        to_ms=window.to_ms,
        complete_to_ms=max(complete_to_ms, reached) if is_joined else complete_to_ms,
        topics=tuple(topics),
    )
    results.put(f"{RUNS}run={run}.json", json.dumps(asdict(note)).encode())
    return note
