"""Writers delay records, and cancel some, while promoters run by messages and each minute, twice at once.

Some records are not delayed: their appends come between the transactions of promoters. Messages are lost, doubled and
late. Instances die, answers are lost, and clocks differ. In the end each record that was acknowledged and not cancelled
is in the log once, and a cancelled one is not.
"""

from dataclasses import dataclass
from functools import partial

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import TIMER_DELAY_MS_MAX
from penstock_core.log.timer import DueSecond, TimerPlace, new_timer_id, scheduled_id
from penstock_core.zones.quorum import Acks
from penstock_service.adapters.memory.timers import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_or_schedule import Produced, produce_or_schedule
from penstock_service.timers.promote import promote_second
from penstock_service.timers.promote_due import promote_due
from penstock_service.timers.scheduled import cancel_scheduled
from tests.history import format as history
from tests.simulation.engine.timing import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.service import batch

_TOPIC = "delayed"
_BUDGET_MS = 20_000.0
_TRIES_MAX = 10


@dataclass(slots=True)
class _Delayed:
    """One record, with all facts that its writer knows of it."""

    is_acked: bool = False
    is_maybe: bool = False
    is_cancelled: bool = False
    may_be_cancelled: bool = False


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic(_TOPIC, partitions=1)
    sent: dict[str, _Delayed] = {}
    for number in range(random.choice([1, 2])):
        writer = _Writer(simulation, topic, f"d{number}", sent)
        simulation.work(f"d{number}", writer.run)
    for number in range(random.choice([1, 2])):
        simulation.scheduler.spawn(f"seconds{number}", lambda: _take_messages(simulation))
    for number in range(random.choice([1, 2])):
        simulation.work(f"minutes{number}", lambda: _run_each_minute(simulation))
    simulation.final_checks.append(lambda: _check(simulation, sent))


class _Writer:
    def __init__(self, simulation: Simulation, topic: str, name: str, sent: dict[str, _Delayed]) -> None:
        self._simulation = simulation
        self._topic = topic
        self._name = name
        self._sent = sent
        self._random = simulation.scheduler.random

    def run(self) -> None:
        for number in range(self._random.choice([3, 20, 40])):
            self._simulation.scheduler.pause(self._random.uniform(0.0, 300.0))
            value = f"{self._name}-{number}"
            if self._random.random() < 0.1:
                self._append(f"{value}-now")
            now_ms = EPOCH_MS + int(self._simulation.scheduler.now_ms)
            due_ms = now_ms + self._random.choice([0, 0, 500, 3_000, 30_000])
            place = TimerPlace(due_ms, new_timer_id(now_ms, number, self._random.randbytes(6)))
            each = self._sent[value] = _Delayed()
            self._schedule(value, place, each)
            if each.is_acked and self._random.random() < 0.2:
                self._simulation.scheduler.pause(self._random.uniform(0.0, 1.2 * (due_ms - now_ms)))
                self._cancel(place, each)

    def _schedule(self, value: str, place: TimerPlace, each: _Delayed) -> None:
        simulation = self._simulation
        operation = simulation.recorder.invoke(
            self._name, history.Function.SEND, [history.Send((self._topic, 0), value)], acks=history.Acks.QUORUM
        )
        entry = ProduceEntry(topic=self._topic, partition=0, data=batch(value), timer=place)

        def send(instance: Instance) -> Produced | PenstockError:
            return produce_or_schedule(instance, [entry], Acks.QUORUM)[0]

        for _ in range(_TRIES_MAX):
            try:
                result = simulation.call(send, is_read=False)
            except PenstockError as error:
                result = error
            if not isinstance(result, PenstockError):
                each.is_acked = True
                break
            each.is_maybe |= result.maybe_applied
            simulation.scheduler.pause(self._random.uniform(0.0, 2_000.0))
        simulation.recorder.maybe(operation)  # it comes later, and the history knows no delays

    def _append(self, value: str) -> None:
        """Sends a record that is not delayed, in one try: it comes between the transactions of promoters."""
        simulation, each = self._simulation, _Delayed()
        self._sent[value] = each
        operation = simulation.recorder.invoke(
            self._name, history.Function.SEND, [history.Send((self._topic, 0), value)], acks=history.Acks.QUORUM
        )
        entry = ProduceEntry(topic=self._topic, partition=0, data=batch(value))
        try:
            result = simulation.call(
                lambda instance: produce_or_schedule(instance, [entry], Acks.QUORUM)[0], is_read=False
            )
        except PenstockError as error:
            result = error
        each.is_acked = not isinstance(result, PenstockError)
        each.is_maybe = isinstance(result, PenstockError) and result.maybe_applied
        simulation.recorder.maybe(operation)

    def _cancel(self, place: TimerPlace, each: _Delayed) -> None:
        name = scheduled_id(0, place)  # type: ignore[arg-type]  # it is partition 0
        for _ in range(_TRIES_MAX):
            each.may_be_cancelled = True
            try:
                self._simulation.call(lambda instance: cancel_scheduled(instance, self._topic, name), is_read=False)
            except PenstockError as error:
                if error.code is ErrorCode.TIMER_SETTLED:
                    each.may_be_cancelled = False
                    return
                self._simulation.scheduler.pause(50.0)
                continue
            each.is_cancelled = True
            return


def _take_messages(simulation: Simulation) -> None:
    triggers, random = simulation.stores.timer_triggers, simulation.scheduler.random
    assert isinstance(triggers, MemoryTimerTriggers)
    while not simulation.is_over:
        if not triggers.seconds:
            simulation.scheduler.pause(200.0)
            continue
        second, delay_ms = triggers.seconds.pop(0)
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            late_ms = delay_ms + random.choice([0.0, 500.0, 5_000.0])
            simulation.scheduler.spawn("second", partial(_promote, simulation, second), delay_ms=late_ms)


def _promote(simulation: Simulation, second: DueSecond) -> None:
    def run(instance: Instance) -> object:
        return promote_second(instance, second, instance.clock.monotonic_ms() + _BUDGET_MS)

    try:
        simulation.call(run, is_read=False)
        simulation.count("second promoted")
    except PenstockError as error:
        simulation.scheduler.note("not promoted", error)


def _run_each_minute(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    for _ in range(random.choice([1, 3])):
        simulation.scheduler.pause(random.choice([random.uniform(0.0, 5_000.0), random.uniform(0.0, 60_000.0)]))
        try:
            simulation.call(lambda instance: promote_due(instance, budget_ms=_BUDGET_MS), is_read=False)
        except PenstockError as error:
            simulation.scheduler.note("not run", error)


def _check(simulation: Simulation, sent: dict[str, _Delayed]) -> None:
    """Let all time pass, and promote what is left. Then compare the log with what the writers know."""
    simulation.jump(120_000.0)
    done = promote_due(simulation.undisturbed(), budget_ms=float(TIMER_DELAY_MS_MAX))
    expect(done.failures == 0 and done.promotion.is_finished, f"timers cannot be promoted: {done}")
    for value, each in sent.items():
        count = len(simulation.oracle.log.places.get(value, ()))
        expect(count <= 1, f"delayed record {value} came {count} times")
        expect(not (each.is_cancelled and count), f"cancelled record {value} came")
        is_due = each.is_acked and not each.may_be_cancelled
        expect(count == 1 or not is_due, f"delayed record {value} was acknowledged, and never came")
        is_known = each.is_acked or each.is_maybe
        expect(count == 0 or is_known, f"delayed record {value} was refused, and came")
