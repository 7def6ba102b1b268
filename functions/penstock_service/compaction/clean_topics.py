"""Clean the topics with `cleanup_policy=compact`, up to a bound of bytes a day. It runs each hour.

A pass over a partition costs its log's bytes, as its index tells them. The cursor holds what the passes of the day have
cost, and is stored before a pass begins: a run that dies has paid, and the next one begins behind it. The lease of
each partition keeps runs apart (compact.py), and two runs at once may spend what one could.

A run serves the partitions in a circle, and begins at the one whose turn it is:

- A log that does not fit into what the day has left waits, and smaller ones overtake it. It is the first of the next
  day, so it waits for no longer than a day in its turn.
- A log that is larger than a day's bound, or than the time of a run, is left to the Spark job `compact`.
- A pass that the end of the run cuts short begins anew, as the first of the next run. The records that it has
  removed are gone, so the next pass writes less.
- A pass that fails begins anew on the next day. So a log that fails costs a day no more than once.
"""

import json
from dataclasses import asdict, dataclass, replace

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.ids import Partition
from penstock_core.limits import CLEANING_LATE_MS
from penstock_service.compaction.clean import Dirt
from penstock_service.compaction.compact import CompactionResult, attempt_compact, in_turn, place_of
from penstock_service.instance.instance import Instance

_JOB = "clean"
_FAILED_JOB = "clean_failed"  # a cursor of its own: an earlier release reads the other, and knows no more than it has
_FAILED_MAX = 500  # partitions; those beyond are tried each hour, as they cost
_DAY_MS = 24 * 3_600_000
_SETTINGS = CompactionSettings(merges=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult:
    """The counts of one run.

    `partitions` were served; `passes` of them ended, over logs of `bytes_cleaned` in all. These bytes are dirty still:
    `bytes_left` of logs that are due; among them `bytes_too_large` of logs that no run can clean, and `bytes_late` of
    logs that have been due for `CLEANING_LATE_MS`. `failures` counts partitions that could not be cleaned, and those
    whose passes failed earlier on the day; `held` those that another run held. `is_finished` is false if the time was
    up before every partition was served.
    """

    partitions: int = 0
    passes: int = 0
    bytes_cleaned: int = 0
    bytes_left: int = 0
    bytes_too_large: int = 0
    bytes_late: int = 0
    batches_left_whole: int = 0
    failures: int = 0
    held: int = 0
    is_finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """The cursor: the passes of `day` cost `spent_bytes`. It is the turn of `waiting`, and then of `next`."""

    day: int
    spent_bytes: int = 0
    next: str | None = None
    waiting: str | None = None


class _Day:
    """Admits passes while they fit into what the day has left, and stores what they cost before they begin."""

    def __init__(self, instance: Instance, progress: _Progress, bytes_max: int) -> None:
        self._instance = instance
        self._bytes_max = bytes_max
        self.progress = progress
        self.following: str | None = None  # the place whose turn it is if the run dies in the pass
        self.waiting: str | None = None

    def admits(self, dirt: Dirt) -> bool:
        """The Admission of this day. One put if it admits the pass."""
        spent = self.progress.spent_bytes + dirt.log_bytes
        if spent > self._bytes_max:
            return False
        self.store(replace(self.progress, spent_bytes=spent, next=self.following, waiting=self.waiting))
        return True

    def store(self, progress: _Progress) -> None:
        """Stores the progress. One put, if it is new."""
        if progress != self.progress:
            self.progress = progress
            self._instance.stores.cursors.put(_JOB, json.dumps(asdict(progress)))


def clean_topics(
    instance: Instance, *, budget_ms: float, bytes_per_day: int, settings: CompactionSettings = _SETTINGS
) -> CleaningResult:
    """One run over the partitions of compacted topics in a circle from the cursor on, until the time is over.

    For each partition two updates for its lease, a read of its head and a query for each 64 pages; one put and a pass
    (clean.py) for those that are due. A partition that fails is counted and logged. The next run meets it again, or the
    first of the next day if the pass has cost something. Raises what reading the topics and storing the cursor raises.
    """
    now_ms = instance.clock.now_ms()
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    day = _Day(instance, _progress_of(instance, now_ms // _DAY_MS), bytes_per_day)
    found = _queue(instance, day.progress)
    failed = _failed_on(instance, day.progress.day)
    queue = [each for each in found if place_of(*each) not in failed]
    resting = len(found) - len(queue)
    total = CleaningResult(partitions=resting, failures=resting)
    following: str | None = None  # the place whose turn it is in the next run
    for at, (topic, partition) in enumerate(queue):
        left_ms = deadline_ms - instance.clock.monotonic_ms()
        if left_ms <= 0:
            following, total = place_of(topic, partition), replace(total, is_finished=False)
            break
        spent = day.progress.spent_bytes
        day.following = place_of(*queue[(at + 1) % len(queue)])
        done = attempt_compact(instance, topic, partition, settings, budget_ms=left_ms, admits=day.admits)
        _log(instance, done)
        begun_bytes = day.progress.spent_bytes - spent
        # The first of a run has all its time: what it cannot clean, no run can.
        is_too_large = (at == 0) if not done.is_finished else bool(done.dirt and done.dirt.log_bytes > bytes_per_day)
        total = _with(total, done, begun_bytes, is_too_large=is_too_large, now_ms=now_ms)
        if done.failures and begun_bytes and len(failed) < _FAILED_MAX:
            failed.append(place_of(topic, partition))
            instance.stores.cursors.put(_FAILED_JOB, json.dumps({"day": day.progress.day, "places": failed}))
        if done.dirt and not begun_bytes and not is_too_large and not done.failures:
            day.waiting = day.waiting or place_of(topic, partition)
        if not done.is_finished:
            rest = queue[at + is_too_large :]
            following, total = place_of(*rest[0]) if rest else None, replace(total, is_finished=False)
            break
    day.store(replace(day.progress, next=following, waiting=day.waiting))
    return total


def _queue(instance: Instance, progress: _Progress) -> list[tuple[str, Partition]]:
    topics = [topic for topic in instance.stores.topics.list() if topic.config.is_compacted]
    queue = in_turn(((str(topic.name), each) for topic in topics for each in topic.all_partitions()), progress.next)
    return sorted(queue, key=lambda each: place_of(*each) != progress.waiting)


def _progress_of(instance: Instance, day: int) -> _Progress:
    """The progress that the last run has stored, with nothing spent if that was on another day."""
    text = instance.stores.cursors.get(_JOB)
    found = _Progress(**json.loads(text)) if text else _Progress(day=day)
    return found if found.day == day else replace(found, day=day, spent_bytes=0)


def _failed_on(instance: Instance, day: int) -> list[str]:
    """The places of the partitions whose passes have failed on that day."""
    found = json.loads(instance.stores.cursors.get(_FAILED_JOB) or "{}")
    return list(found["places"]) if found.get("day") == day else []


def _with(
    total: CleaningResult, done: CompactionResult, begun_bytes: int, *, is_too_large: bool, now_ms: int
) -> CleaningResult:
    has_ended = begun_bytes > 0 and done.dirt is None
    left = done.dirt.dirty_bytes if done.dirt else 0
    is_late = done.dirt is not None and now_ms - done.dirt.due_ms > CLEANING_LATE_MS
    return replace(
        total,
        partitions=total.partitions + 1,
        passes=total.passes + int(has_ended),
        bytes_cleaned=total.bytes_cleaned + begun_bytes * has_ended,
        bytes_left=total.bytes_left + left,
        bytes_too_large=total.bytes_too_large + left * is_too_large,
        bytes_late=total.bytes_late + left * is_late,
        batches_left_whole=total.batches_left_whole + done.batches_left_whole,
        failures=total.failures + int(done.failures > 0),
        held=total.held + int(done.is_held),
    )


def _log(instance: Instance, done: CompactionResult) -> None:
    for error in done.errors:
        instance.telemetry.log("cleaning_failed", topic=done.topic, partition=done.partition, error=error)
    if done.batches_left_whole:
        instance.telemetry.log(
            "batches_left_whole", topic=done.topic, partition=done.partition, batches=done.batches_left_whole
        )
