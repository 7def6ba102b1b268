"""Runs a replay: notes the request when it begins, then sends its lanes, round after round. Runs on the driver.

The note fixes the source and the target of the replay. So each of its runs sends the same records with the same numbers
(replay_lane.py). A finished replay stays finished: to send the same records again, use another id.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_spark.replay.replay_lane import Lane, LaneResult
from penstock_spark.replay.replay_source import RowWindow, Selection
from penstock_spark.result_store import ResultStore

# Counted from a replay's beginning. The day less is for a run that begins just before the end.
RESUMABLE_MS = PRODUCER_KEPT_MS - 24 * 3_600_000

LaneRunner = Callable[[Sequence[Lane]], Sequence[LaneResult]]
EventLogger = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The request of a replay. Two equal requests are the same replay, unless the user gives them ids."""

    table: str
    topic: str
    topic_id: str
    partitions: int  # of the target that take records: where keys go depends on them
    by_key: bool
    selection: Selection
    first: int = 0  # the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNote:
    """The note of a replay that began: the commit of its table, and the snapshot if the table is Iceberg's."""

    request_digest: str
    commit: int
    snapshot_id: int | None
    started_ms: int


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """The result of a run: records that it appended, and records that it found there from earlier runs."""

    appended: int = 0
    repeated: int = 0

    def facts(self) -> dict[str, Any]:
        """The facts for the job's result line."""
        return asdict(self)


def digest_of(request: ReplayRequest) -> str:
    """A digest of the request, 16 characters."""
    facts = asdict(request)
    if not request.first:
        del facts["first"]  # the digest is that of older releases
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def begin_replay(
    lake: ResultStore, replay_id: str, request: ReplayRequest, commit: int, snapshot_id: int | None, now_ms: int
) -> ReplayNote:
    """The replay's note: this one, or the note that its first run put. One put, and a get if the replay began before.

    Raises CONCURRENT_UPDATE if the id belongs to another request. Raises it too for a replay that began so long ago
    that the target may have forgotten which records arrived.
    """
    note = ReplayNote(request_digest=digest_of(request), commit=commit, snapshot_id=snapshot_id, started_ms=now_ms)
    path = _path(request.table, replay_id)
    if lake.put_new(path, json.dumps(asdict(note)).encode()):
        return note
    found = ReplayNote(**json.loads(lake.get(path) or b"{}"))
    if found.request_digest != note.request_digest:
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"replay {replay_id!r} of table {request.table!r} was begun with other options, or its topic had other "
            "partitions then: give the same options, or another --replay-id",
        )
    if not is_done(lake, request.table, replay_id) and now_ms - found.started_ms > RESUMABLE_MS:
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"replay {replay_id!r} began {(now_ms - found.started_ms) // 3_600_000} hours ago: its topic may have "
            "forgotten which records arrived, and would take them twice; give another --replay-id, and select only the "
            "records that the topic lacks",
        )
    return found


def is_done(lake: ResultStore, table: str, replay_id: str) -> bool:
    """A run has reached the replay's end. One request."""
    return lake.size(_done_path(table, replay_id)) is not None


def run_replay(
    windows: Mapping[int, Sequence[RowWindow]], run_lanes: LaneRunner, round_bytes: int, log_event: EventLogger
) -> ReplayResult:
    """Send the windows of all partitions in parallel, and each partition's windows in order.

    A round sends about `round_bytes` of segments. It takes at least one window of each partition, so the loop ends.
    """
    left = {partition: list(each) for partition, each in windows.items()}
    counts: dict[int, Mapping[int, int]] = {}
    total = ReplayResult()
    while any(left.values()):
        share = round_bytes // sum(1 for each in left.values() if each)
        lanes = [
            Lane(partition=partition, windows=_take(each, share), counts=counts.get(partition, {}))
            for partition, each in left.items()
            if each
        ]
        for done in run_lanes(lanes):
            counts[done.partition] = done.counts
            total.appended += done.appended
            total.repeated += done.repeated
        log_event(
            "replayed",
            appended=total.appended,
            repeated=total.repeated,
            offsets_left=sum(each.end_offset - each.start_offset for rest in left.values() for each in rest),
        )
    return total


def finish_replay(lake: ResultStore, table: str, replay_id: str, total: ReplayResult) -> None:
    """Note that the replay is done. One put."""
    lake.put_new(_done_path(table, replay_id), json.dumps(asdict(total)).encode())


def _take(windows: list[RowWindow], share: int) -> tuple[RowWindow, ...]:
    """Remove the first windows from the list and return them.

    They are up to `share` bytes together, or one window that is larger.
    """
    count, taken_bytes = 0, 0
    while count < len(windows) and (count == 0 or taken_bytes + windows[count].stored_bytes <= share):
        taken_bytes += windows[count].stored_bytes
        count += 1
    taken = tuple(windows[:count])
    del windows[:count]
    return taken


def _path(table: str, replay_id: str) -> str:
    return f"{table}/_penstock/replays/{replay_id}.json"


def _done_path(table: str, replay_id: str) -> str:
    return f"{table}/_penstock/replays/{replay_id}.done.json"
