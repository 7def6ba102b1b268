"""Runs a replay: notes the request when it begins, then sends its lanes, round after round. Runs on the driver.

The note fixes the source and the target of the replay. So each of its runs sends the same records with the same numbers
(replay_lane.py). A finished replay stays finished: to send the same records again, use another id.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_core.log.index import partition_closed
from penstock_service.instance.instance import Instance
from penstock_spark.replay.replay_lane import Lane, LaneResult, ReplayTarget, deleted
from penstock_spark.replay.replay_source import RowWindow, Selection
from penstock_spark.result_store import ResultStore

# Counted from a replay's beginning. The day less is for a run that begins just before the end.
RESUMABLE_MS = PRODUCER_KEPT_MS - 24 * 3_600_000

LaneRunner = Callable[[Sequence[Lane]], Sequence[LaneResult]]
Placement: TypeAlias = tuple[int, int]  # the first partition and the number of those that take a target's records
EventLogger = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The request of a replay. Two requests that differ in the target's partitions at most are the same replay.

    They are not if the user gives them ids.
    """

    table: str
    topic: str
    topic_id: str
    partitions: int  # of the target that take records now: where keys go depends on them
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


def _stays() -> None:
    raise PenstockError(ErrorCode.PARTITION_CLOSED, "the target's partitions take no more records")


def digest_of(request: ReplayRequest) -> str:
    """A digest of the request, 16 characters. It does not depend on the target's partitions, which may change."""
    facts = asdict(request)
    del facts["first"], facts["partitions"]
    return _digest(facts)


def digest_of_older_releases(request: ReplayRequest) -> str:
    """The digest that releases took which could not replay across a change of the target's partitions."""
    facts = asdict(request)
    if not request.first:
        del facts["first"]
    return _digest(facts)


def default_id(lake: ResultStore, request: ReplayRequest) -> str:
    """The id of the request without a --replay-id. One get: a replay that an older release began keeps its id."""
    older = digest_of_older_releases(request)
    return digest_of(request) if lake.get(_path(request.table, older)) is None else older


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
    if found.request_digest not in (note.request_digest, digest_of_older_releases(request)):
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"replay {replay_id!r} of table {request.table!r} was begun with other options: give the same options, or "
            "another --replay-id",
        )
    if not is_done(lake, request.table, replay_id) and now_ms - found.started_ms > RESUMABLE_MS:
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"replay {replay_id!r} began {(now_ms - found.started_ms) // 3_600_000} hours ago: its topic may have "
            "forgotten which records arrived, and would take them twice; give another --replay-id, and select only the "
            "records that the topic lacks",
        )
    return found


def placements_of(lake: ResultStore, replay_id: str, request: ReplayRequest) -> list[Placement]:
    """Where the replay puts records, oldest first; the last one is where the target takes them now.

    A get for each, and a put for a new one. Raises CONCURRENT_UPDATE if the target's partitions have changed so that
    records of before and after would share a partition: then their numbers there do not tell which have arrived.
    """
    known: list[Placement] = []
    while (found := lake.get(_placement_path(request.table, replay_id, len(known)))) is not None:
        first, partitions = json.loads(found)
        known.append((first, partitions))
    now = (request.first, request.partitions)
    if known and known[-1] == now:
        return known
    if known and now[0] < sum(known[-1]):
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"topic {request.topic!r} had {known[-1][1]} writable partitions from {known[-1][0]} on when replay "
            f"{replay_id!r} began, and has {now[1]} from {now[0]} on: set them back, or give another --replay-id and "
            "select only the records that the topic lacks",
        )
    lake.put_new(_placement_path(request.table, replay_id, len(known)), json.dumps(now).encode())
    return placements_of(lake, replay_id, request)


def turned(instance: Instance, lake: ResultStore, request: ReplayRequest, target: ReplayTarget) -> ReplayTarget:
    """The target once its topic takes records in other partitions. One read of the topic, and `placements_of`.

    Raises PARTITION_CLOSED if it takes them where it took them before, and UNKNOWN_TOPIC if it was deleted.
    """
    topic = instance.topic_cache.read_through(request.topic)
    if topic.topic_id != request.topic_id:
        raise deleted(target)
    now = (topic.first_writable, topic.writable_partitions)
    if now == (target.first, target.partitions):
        raise partition_closed(PartitionKey(topic.topic_id, Partition(topic.first_writable)))
    *earlier, _ = placements_of(lake, target.replay_id, replace(request, first=now[0], partitions=now[1]))
    return replace(target, first=now[0], partitions=now[1], earlier=tuple(earlier))


def is_done(lake: ResultStore, table: str, replay_id: str) -> bool:
    """A run has reached the replay's end. One request."""
    return lake.size(_done_path(table, replay_id)) is not None


def run_replay(
    windows: Mapping[int, Sequence[RowWindow]],
    run_lanes: LaneRunner,
    round_bytes: int,
    log_event: EventLogger,
    turn: Callable[[], None] = _stays,
) -> ReplayResult:
    """Send the windows of all partitions in parallel, and each partition's windows in order.

    A round sends about `round_bytes` of segments. It takes at least one window of each partition, so the loop ends.
    `turn` lets `run_lanes` place records where the target takes them now, or raises if that is as before. Lanes that
    met a closed partition send their windows again after it.
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
        results = [*run_lanes(lanes)]
        for lane, done in zip(lanes, results, strict=True):
            total.appended += done.appended
            if done.is_closed:
                left[done.partition][:0] = lane.windows
                total.repeated -= done.appended  # the lane meets these again
            else:
                counts[done.partition] = done.counts
                total.repeated += done.repeated
        if any(done.is_closed for done in results):
            turn()
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


def _placement_path(table: str, replay_id: str, number: int) -> str:
    return f"{table}/_penstock/replays/{replay_id}.placement-{number}.json"


def _digest(facts: Mapping[str, Any]) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _done_path(table: str, replay_id: str) -> str:
    return f"{table}/_penstock/replays/{replay_id}.done.json"
