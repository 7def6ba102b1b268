"""Delayed records of a mirrored topic: writers delay some, and cancel some, while promoters run at both sides.

The oracle knows which of them the mirror was told of. After a promotion each of these comes there once, and not before
its time, and no side has one twice. A planned promotion that waits for them leaves none behind.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId, TopicName
from penstock_core.limits import TIMER_DELAY_MS_MAX
from penstock_core.log.delivery import DeliveryOutcome
from penstock_core.log.timer import DueSecond, Timer, TimerPlace, new_timer_id, scheduled_id
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.mirror.move_topic import MovedTopic
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.timers.promote import promote_second
from penstock_service.timers.promote_due import promote_due
from penstock_service.timers.scheduled import cancel_scheduled, list_scheduled
from tests.history import format as history
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.expected_log import MISSED
from tests.simulation.oracle.mirrors import MirrorOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_BUDGET_MS = 20_000.0
_TRIES_MAX = 10
_PAGE = 1_000
_FOREVER_MS = 3_600_000.0


@dataclass(slots=True, kw_only=True)
class _Delayed:
    """A delayed record, in milliseconds of the run. `is_cancelled`: perhaps."""

    value: str
    partition: Partition
    accepted_ms: float | None = None
    is_cancelled: bool = False


class MirroredTimers:
    """The delayed records of one source, and what its mirrors were told of them."""

    def __init__(self, simulation: Simulation, names: tuple[str, str], oracle: MirrorOracle) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._source, self._mirrored = names
        self._oracle = oracle
        self._records: dict[TimerPlace, _Delayed] = {}
        self._told: dict[TopicId, set[TimerPlace]] = {}
        self._whole_ms: dict[TopicId, float] = {}  # all that was accepted before is told
        self._begun_ms: dict[int, float] = {}  # by move
        simulation.storage.observers.append(self._observe)
        simulation.keep_marks()

    def start(self, lasts_ms: float) -> None:
        """Writers, and promoters by messages and each minute."""
        for number in range(self._random.choice([1, 2])):
            self._simulation.work(f"delayer{number}", partial(self._write, f"d{number}", lasts_ms))
        self._simulation.scheduler.spawn("delayed seconds", self._take_messages)
        for number in range(self._random.choice([1, 2])):
            self._simulation.work(f"delayed minutes{number}", lambda: self._run_each_minute(lasts_ms))

    def moved(self, moved: MovedTopic, mirrored: TopicId, begun_ms: float) -> bool:
        """True if the mirror was told all that wait since the move. `begun_ms` is before the call."""
        begun_ms = self._begun_ms.setdefault(moved.note.number, begun_ms)
        if moved.are_timers_told and not any(each.lag for each in moved.partitions):
            self._whole_ms[mirrored] = min(begun_ms, self._whole_ms.get(mirrored, begun_ms))
            self._simulation.count("timers told since a move")
        return moved.are_timers_told

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "timers" or isinstance(outcome, PenstockError):
            return
        names = self._simulation.oracle.log.names
        if method == "put" and names.get(arguments[0].key.topic_id) == self._mirrored:
            timer: Timer = outcome
            expect(timer.is_copy, f"{timer} is no copy, and waits at a mirror")
            self._told.setdefault(timer.key.topic_id, set()).add(timer.place)
            self._simulation.count("timer copied" if timer.is_waiting else "timer copied too late")
        elif method == "promote" and outcome is DeliveryOutcome.DONE:
            key: PartitionKey = arguments[0].key
            if names.get(key.topic_id) == self._mirrored:
                expect(key in self._oracle.promoted, f"{key} is a mirror, and {arguments[0].timers} are delivered")
                self._simulation.count("copy delivered")

    def _write(self, name: str, lasts_ms: float) -> None:
        scheduler = self._simulation.scheduler
        for number in range(self._random.choice([5, 10, 20])):
            scheduler.pause(self._random.uniform(0.0, lasts_ms / 15))
            topic = self._simulation.stores.topics.get(TopicName(self._source))
            assert topic is not None
            partition = self._random.choice(topic.all_partitions())
            now_ms = EPOCH_MS + int(scheduler.now_ms)
            due_ms = now_ms + self._random.choice([500, 10_000, 30_000, 90_000, 200_000])
            place = TimerPlace(due_ms, new_timer_id(now_ms, number, self._random.randbytes(6)))
            record = self._records[place] = _Delayed(value=f"{name}-{number}", partition=partition)
            if self._schedule(place, record) and self._random.random() < 0.2:
                scheduler.pause(self._random.uniform(0.0, 1.2 * (due_ms - now_ms)))
                self._cancel(place, record)

    def _schedule(self, place: TimerPlace, record: _Delayed) -> bool:
        data = encode([NewRecord(1, None, record.value.encode())])
        entry = ProduceEntry(topic=self._source, partition=record.partition, data=data, timer=place)
        recorder, ops = self._simulation.recorder, [history.Send((self._source, record.partition), record.value)]
        recorder.maybe(recorder.invoke(record.value, history.Function.SEND, ops, acks=history.Acks.QUORUM))
        for _ in range(_TRIES_MAX):
            outcome = self._simulation.attempt(
                "not delayed", lambda it: produce_or_schedule(it, [entry], Acks.QUORUM)[0], is_judged=False
            )
            if outcome is not None and not isinstance(outcome, PenstockError):
                record.accepted_ms = self._simulation.scheduler.now_ms
                self._simulation.count("record delayed")
                return True
            if isinstance(outcome, PenstockError) and outcome.code is ErrorCode.MOVED:
                return False
            self._simulation.scheduler.pause(self._random.uniform(0.0, 2_000.0))
        return False

    def _cancel(self, place: TimerPlace, record: _Delayed) -> None:
        record.is_cancelled = True
        cancel = partial(cancel_scheduled, topic_name=self._source, name=scheduled_id(record.partition, place))
        self._simulation.attempt("not cancelled", cancel, is_judged=False)
        self._simulation.count("timer cancelled")

    def _take_messages(self) -> None:
        triggers, scheduler = self._simulation.stores.timer_triggers, self._simulation.scheduler
        assert isinstance(triggers, MemoryTimerTriggers)
        while not self._simulation.is_over:
            if not triggers.seconds:
                scheduler.pause_between_polls(200.0)
                continue
            second, delay_ms = triggers.seconds.pop(0)
            for _ in range(self._random.choice([0, 1, 1, 2])):
                late_ms = delay_ms + self._random.choice([0.0, 500.0, 5_000.0])
                scheduler.spawn("delayed second", partial(self._promote, second), delay_ms=late_ms)

    def _promote(self, second: DueSecond) -> None:
        self._simulation.attempt(
            "not promoted",
            lambda it: promote_second(it, second, it.clock.monotonic_ms() + _BUDGET_MS),
            is_judged=False,
        )

    def _run_each_minute(self, lasts_ms: float) -> None:
        for _ in range(self._random.choice([3, 6])):
            self._simulation.scheduler.pause(self._random.uniform(0.0, lasts_ms / 2))
            self._simulation.attempt("not run", lambda it: promote_due(it, budget_ms=_BUDGET_MS), is_judged=False)

    def check_whole(self) -> None:
        """Compare what waits at both sides, once a mirror that lives was told all."""
        found = [self._waiting(name) for name in (self._source, self._mirrored)]
        expect(found[0] == found[1], f"{found[0]} wait at the source, and {found[1]} at its mirror")
        self._simulation.count("timers whole")

    def _waiting(self, name: str) -> list[tuple[int, TimerPlace]]:
        page = list_scheduled(self._simulation.undisturbed(), name, _PAGE)
        return [(each.key.partition, each.place) for each in page.timers]

    def check_delivered(self, source: TopicId, mirrored: TopicId) -> None:
        """Let all time pass at a mirror that was promoted, and see where each record came."""
        self._simulation.jump(_FOREVER_MS)
        done = promote_due(self._simulation.undisturbed(), budget_ms=float(TIMER_DELAY_MS_MAX))
        expect(done.failures == 0 and done.promotion.is_finished, f"timers cannot be promoted: {done}")
        here, there = self._values(mirrored), self._values(source)
        whole_ms = self._whole_ms.get(mirrored, -1.0)
        for place, each in self._records.items():
            where = f"{each}, due at {place.due_ms - EPOCH_MS},"
            expect(here[each.value] <= 1, f"{where} came {here[each.value]} times at the mirror")
            expect(there[each.value] <= 1, f"{where} came {there[each.value]} times at the source")
            was_moved = each.accepted_ms is not None and each.accepted_ms < whole_ms
            is_sure = (place in self._told.get(mirrored, ()) or was_moved) and not each.is_cancelled
            if is_sure and not here[MISSED]:
                expect(here[each.value] == 1, f"{where} was told, and did not come at the mirror")
                self._simulation.count("told timer came")

    def _values(self, topic_id: TopicId) -> Mapping[str, int]:
        appends = self._simulation.oracle.log.appends
        found = Counter[str]()
        for key, entries in appends.items():
            if key.topic_id == topic_id:
                found.update(value for entry in entries for value in entry.values)
        return found
