"""What schedules do: each run appends its record once, with what the schedule says then, where its key belongs then.

The watch hears of each effect on the stores, in their order. It knows the times of its schedules without cron: they run
each so many minutes of UTC.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import APPEND_MS_MAX
from penstock_core.log.ref import Ref
from penstock_core.log.topic import Topic
from penstock_core.records.codec import Record, decode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.schedules.schedule import DUE_HEADER, NAME_HEADER, Schedule, ScheduleRun
from penstock_core.transaction import Move
from penstock_service.instance.caches import TTL_MS
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

MINUTE_MS = 60_000
_CALL_MS = 60_000.0  # from the reading of a clock to the effect of a write that is late
Run = tuple[str, int, int]  # id, version and due time


def period_ms(schedule: Schedule) -> int:
    """The time between two runs of a schedule with `*/N` minutes."""
    return int(schedule.times.cron.split()[0].removeprefix("*/")) * MINUTE_MS


@dataclass(slots=True)
class ScheduleWatch:
    """The schedules as they are, and the runs so far."""

    simulation: Simulation
    known: dict[str, Schedule] = field(default_factory=dict)
    appended: dict[Run, float] = field(default_factory=dict)  # with how late each was, in milliseconds
    left: list[tuple[float, Topic]] = field(default_factory=list)  # topics as they were, and the time of their change

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        """Take the effect of a storage call."""
        if isinstance(outcome, PenstockError):
            return
        if label == "transactions" and method == "move" and outcome.is_applied:
            self._moved(arguments[0])
        elif label == "topics" and method == "replace":
            self.left.append((self._now_ms, arguments[0]))
        elif label == "schedules" and method == "change":
            self._changed(arguments[1])
        elif label == "schedules" and method == "delete" and outcome:
            self.known.pop(arguments[0].name, None)
        elif label == "schedules" and method == "note" and outcome:
            self._noted(arguments[0])

    def stored(self, name: str) -> Schedule | None:
        """The schedule as the bare store has it."""
        return next((each for each in self.simulation.stores.schedules.list("", 1_000) if each.name == name), None)

    def _changed(self, new: Schedule) -> None:
        before, found = self.known.get(new.name), self.stored(new.name)
        assert found is not None
        if before is not None and before.schedule_id == found.schedule_id:
            expect(found.last == before.last, f"a change of {new.name} undid the note of a run: {found.last}")
            keeps = found.times == before.times and found.is_enabled and before.is_enabled
            expect(not keeps or found.next_ms == before.next_ms, f"a change of {new.name} moved its due time")
        self.known[new.name] = found

    def _noted(self, run: ScheduleRun) -> None:
        before = self._known_as(run)
        if run.after.next_ms != before.next_ms:
            topic = self.simulation.stores.topics.get(before.topic)
            expect(
                topic is None or topic.topic_id != before.topic_id,
                f"the run of {before.name} at {before.next_ms} was given up, and its topic is there",
            )
            self._moved_on(run)
        self.known[before.name] = run.after

    def _moved(self, move: Move) -> None:
        if not move.runs:
            return
        found = {
            (_header(record, NAME_HEADER), _header(record, DUE_HEADER)): (key, record)
            for key, refs in move.refs.items()
            for record in self._records(refs)
        }
        expect(len(found) == len(move.runs), f"{len(found)} records were appended for {len(move.runs)} runs")
        for run in move.runs:
            before = self._known_as(run)
            key, record = found.get((before.name, str(before.next_ms)), (None, None))
            expect(record is not None, f"the run of {before.name} at {before.next_ms} has no record")
            assert record is not None
            assert key is not None
            assert before.next_ms is not None
            self._check(before, key, record)
            done = (before.schedule_id, before.version, before.next_ms)
            expect(done not in self.appended, f"the run of {before.name} at {before.next_ms} came twice")
            self.appended[done] = self._now_ms - before.next_ms
            self.simulation.count("schedule run")
            self._moved_on(run)
            self.known[before.name] = run.after
            expect(self.stored(before.name) == run.after, f"{before.name} is not as its run has left it")

    def _known_as(self, run: ScheduleRun) -> Schedule:
        """The schedule, which the run must have read as it is."""
        known, read = self.known.get(run.before.name), run.before
        expect(known is not None, f"{read.name} was deleted, and runs")
        assert known is not None
        same = (known.schedule_id, known.version, known.next_ms) == (read.schedule_id, read.version, read.next_ms)
        expect(same, f"a run of {known.name} rests on {read.version} at {read.next_ms}, it is {known}")
        return known

    def _check(self, schedule: Schedule, key: PartitionKey, record: Record) -> None:
        topic = self.simulation.stores.topics.get(schedule.topic)
        expect(key.topic_id == schedule.topic_id, f"{schedule.name} was appended to another topic")
        expect(record.value == schedule.record.value, f"{schedule.name} appended {record.value!r} of an old version")
        text = schedule.name.encode() if schedule.record.key is None else schedule.record.key
        if topic is not None and topic.topic_id == key.topic_id and topic.opening is None:
            since_ms = self._now_ms - TTL_MS - APPEND_MS_MAX  # a run remembers a topic, and then has its window
            lately = [each for at_ms, each in self.left if at_ms >= since_ms and each.topic_id == topic.topic_id]
            places = {
                each.first_writable + partition_for_key(text, each.writable_partitions) for each in (topic, *lately)
            }
            expect(key.partition in places, f"{schedule.name} went to partition {key.partition}, its key has {places}")

    def _moved_on(self, run: ScheduleRun) -> None:
        """The next run is the first one behind the due time and the clock of who ran it."""
        due_ms, next_ms, period = run.before.next_ms or 0, run.after.next_ms or 0, period_ms(run.before)
        expect(next_ms % period == 0 and next_ms > due_ms, f"{run.before.name} goes from {due_ms} to {next_ms}")
        latest = max(due_ms, self._now_ms + CLOCK_SKEW_MS)
        expect(next_ms - period <= latest, f"{run.before.name} passed over runs: from {due_ms} to {next_ms}")
        expect(due_ms <= self._now_ms + CLOCK_SKEW_MS, f"{run.before.name} ran {due_ms - self._now_ms} ms early")
        expect(next_ms >= self._now_ms - _CALL_MS, f"{run.before.name} runs again what it has missed: {next_ms}")

    def _records(self, refs: Any) -> list[Record]:
        bodies = self.simulation.oracle.log.bodies
        pieces = [memoryview(bodies[ref.segment_id])[ref.position : ref.position + ref.length] for ref in _refs(refs)]
        return [record for piece in pieces for record in decode(piece)]

    @property
    def _now_ms(self) -> float:
        return EPOCH_MS + self.simulation.scheduler.now_ms


def _refs(refs: Any) -> list[Ref]:
    return [*refs]


def _header(record: Record, name: str) -> str:
    return next(((value or b"").decode() for each, value in record.headers if each == name), "")
