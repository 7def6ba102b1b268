"""A replay: what was asked for, noted when it begins, and its lanes, round after round. Runs on the driver.

The note fixes what the replay reads and where it goes, so that each of its runs sends the same records with the same
numbers (replay_lane.py). A replay that is done stays done: another one of the same records has another id.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_spark.replay_lane import Lane, LaneDone
from penstock_spark.replay_source import Selection, Window
from penstock_spark.result_store import ResultStore

# From its beginning on: the day less is for the run that is under way when it ends.
RESUMABLE_MS = PRODUCER_KEPT_MS - 24 * 3_600_000

SpreadLanes = Callable[[Sequence[Lane]], Sequence[LaneDone]]
Tell = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a replay is asked for: two that are equal are the same replay, unless they are given ids."""

    table: str
    topic: str
    topic_id: str
    partitions: int  # of the target: where keys go depends on them
    by_key: bool
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A replay that began: with which commit of the table, and which snapshot if it is Iceberg's."""

    request_digest: str
    commit: int
    snapshot_id: int | None
    started_ms: int


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a run has done: appended, and found there from runs before."""

    appended: int = 0
    repeated: int = 0

    def facts(self) -> dict[str, Any]:
        """For the job's result."""
        return asdict(self)


def digest_of(request: Request) -> str:
    """16 characters that stand for the request."""
    return sha256(json.dumps(asdict(request), sort_keys=True).encode()).hexdigest()[:16]


def begin_replay(
    lake: ResultStore, replay_id: str, request: Request, commit: int, snapshot_id: int | None, now_ms: int
) -> Note:
    """The replay's note: put now, or what its first run has put. A put, and a get if it began before.

    Raises CONFLICT if the id is that of another request, or if it began so long ago that the target may have
    forgotten what arrived.
    """
    note = Note(request_digest=digest_of(request), commit=commit, snapshot_id=snapshot_id, started_ms=now_ms)
    path = _path(request.table, replay_id)
    if lake.put_new(path, json.dumps(asdict(note)).encode()):
        return note
    found = Note(**json.loads(lake.get(path) or b"{}"))
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
            "forgotten which records arrived, and would take them twice; give another --replay-id and leave out what "
            "the topic has",
        )
    return found


def is_done(lake: ResultStore, table: str, replay_id: str) -> bool:
    """Whether a run has come to the replay's end. One request."""
    return lake.size(_done_path(table, replay_id)) is not None


def run_replay(windows: Mapping[int, Sequence[Window]], spread: SpreadLanes, round_bytes: int, tell: Tell) -> Replayed:
    """Sends the windows, all partitions side by side, each in its order; about `round_bytes` of segments a round."""
    left = {partition: list(each) for partition, each in windows.items()}
    counts: dict[int, Mapping[int, int]] = {}
    total = Replayed()
    while any(left.values()):
        share = round_bytes // sum(1 for each in left.values() if each)
        lanes = [
            Lane(partition=partition, windows=_take(each, share), counts=counts.get(partition, {}))
            for partition, each in left.items()
            if each
        ]
        for done in spread(lanes):
            counts[done.partition] = done.counts
            total.appended += done.appended
            total.repeated += done.repeated
        tell(
            "replayed",
            appended=total.appended,
            repeated=total.repeated,
            offsets_left=sum(each.end_offset - each.start_offset for rest in left.values() for each in rest),
        )
    return total


def finish_replay(lake: ResultStore, table: str, replay_id: str, total: Replayed) -> None:
    """Notes that the replay is done. One put."""
    lake.put_new(_done_path(table, replay_id), json.dumps(asdict(total)).encode())


def _take(windows: list[Window], share: int) -> tuple[Window, ...]:
    """The first of the windows, one at least, which leave the list."""
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
