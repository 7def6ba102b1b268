"""Writers delay records, and cancel some, while promoters run by messages and each minute, twice at once.

Some records are not delayed: their appends come between the transactions of promoters. Messages are lost, doubled and
late. Instances die, answers are lost, and clocks differ. The history has each try, so the history checker judges what
comes in the end. The oracle sees that no timer is delivered early.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.limits import TIMER_DELAY_MS_MAX
from penstock_core.log.timer import DueSecond, TimerPlace, new_timer_id, scheduled_id
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import Produced, produce_or_schedule
from penstock_service.timers.promote import promote_second
from penstock_service.timers.promote_due import promote_due
from penstock_service.timers.scheduled import cancel_scheduled
from tests.history import format as history
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.service import batch

_TOPIC = "delayed"
_BUDGET_MS = 20_000.0
_TRIES_MAX = 10


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic(_TOPIC, partitions=1)
    for number in range(random.choice([1, 2])):
        writer = _Writer(simulation, topic, f"d{number}")
        simulation.work(f"d{number}", writer.run)
    for number in range(random.choice([1, 2])):
        simulation.scheduler.spawn(f"seconds{number}", lambda: _take_messages(simulation))
    for number in range(random.choice([1, 2])):
        simulation.work(f"minutes{number}", lambda: _run_each_minute(simulation))
    simulation.final_checks.append(lambda: _check(simulation, topic))


class _Writer:
    def __init__(self, simulation: Simulation, topic: str, name: str) -> None:
        self._simulation = simulation
        self._topic = topic
        self._name = name
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
            if self._schedule(value, place) and self._random.random() < 0.2:
                self._simulation.scheduler.pause(self._random.uniform(0.0, 1.2 * (due_ms - now_ms)))
                self._cancel(place)

    def _schedule(self, value: str, place: TimerPlace) -> bool:
        """Try until it is acknowledged, and tell whether it was. Each try is an operation of the history."""
        due_ns = (place.due_ms - EPOCH_MS) * 1_000_000
        ops = [history.Schedule((self._topic, 0), value, max(0, due_ns), scheduled_id(Partition(0), place))]
        entry = ProduceEntry(topic=self._topic, partition=0, data=batch(value), timer=place)
        for _ in range(_TRIES_MAX):
            result = self._try(history.Function.SCHEDULE, ops, lambda instance: _produced(instance, entry))
            if not isinstance(result, PenstockError):
                return True
            self._simulation.scheduler.pause(self._random.uniform(0.0, 2_000.0))
        return False

    def _append(self, value: str) -> None:
        """Send a record that is not delayed, in one try: it comes between the transactions of promoters."""
        entry = ProduceEntry(topic=self._topic, partition=0, data=batch(value))
        ops = [history.Send((self._topic, 0), value)]
        self._try(history.Function.SEND, ops, lambda instance: _produced(instance, entry))

    def _cancel(self, place: TimerPlace) -> None:
        name = scheduled_id(Partition(0), place)
        ops = [history.Cancel(self._topic, name)]
        for _ in range(_TRIES_MAX):
            result = self._try(
                history.Function.CANCEL, ops, lambda instance: cancel_scheduled(instance, self._topic, name)
            )
            if not isinstance(result, PenstockError) or result.code is ErrorCode.TIMER_SETTLED:
                return
            self._simulation.scheduler.pause(50.0)

    def _try(
        self, function: history.Function, ops: Sequence[history.MicroOp], call: Callable[[Instance], object]
    ) -> object:
        """One operation: its result, or its error."""
        recorder = self._simulation.recorder
        operation = recorder.invoke(self._name, function, ops, acks=history.Acks.QUORUM)
        try:
            result = self._simulation.call(call, is_read=False)
        except PenstockError as error:
            result = error
        if not isinstance(result, PenstockError):
            recorder.ok(operation)
        elif result.maybe_applied:
            recorder.maybe(operation)
        else:
            recorder.fail(operation)
        return result


def _produced(instance: Instance, entry: ProduceEntry) -> Produced | PenstockError:
    return produce_or_schedule(instance, [entry], Acks.QUORUM)[0]


def _take_messages(simulation: Simulation) -> None:
    triggers, random = simulation.stores.timer_triggers, simulation.scheduler.random
    assert isinstance(triggers, MemoryTimerTriggers)
    while not simulation.is_over:
        if not triggers.seconds:
            simulation.scheduler.pause_between_polls(200.0)
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
        simulation.attempt("not run", lambda instance: promote_due(instance, budget_ms=_BUDGET_MS))


def _check(simulation: Simulation, topic: str) -> None:
    """Let all time pass, promote what is left, and read it. The history checker judges what came (G12)."""
    simulation.jump(120_000.0)
    done = promote_due(simulation.undisturbed(), budget_ms=float(TIMER_DELAY_MS_MAX))
    expect(done.failures == 0 and done.promotion.is_finished, f"timers cannot be promoted: {done}")
    log = simulation.oracle.log
    for key, appends in log.appends.items():
        if log.names.get(key.topic_id) == topic:
            start = simulation.oracle.log_starts.get(key, 0)
            found = [
                (entry.base_offset + index, value) for entry in appends for index, value in enumerate(entry.values)
            ]
            where = topic, int(key.partition)
            simulation.recorder.done("timers", history.Function.SEEK, [history.Seek(where, int(start))])
            rows = tuple((int(offset), value) for offset, value in found if offset >= start)
            simulation.recorder.ok(
                simulation.recorder.invoke("timers", history.Function.POLL), [history.Poll(where, rows)]
            )
