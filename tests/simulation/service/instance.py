"""A function instance: the service with a memory of its own, its storage calls, its freezes, and its death.

request task --storage call--> send .. effect .. reply     each `..` lets other tasks run
     |                                                     a dead caller's call may still take effect
     '-- parallel calls: tasks of the same instance, stragglers of earlier requests among them

A frozen instance runs no code: requests that have left take effect, and their answers wait for the thaw.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock_core.ids import SegmentId, segment_time_ms
from penstock_core.zones.zone_state import REMEMBERED_MS_MAX
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from tests.simulation.engine.executor import Killed, SimulatedExecutor
from tests.simulation.engine.run_state import RunState
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS, SchedulerClock, SimulatedEntropy
from tests.simulation.oracle.violation import expect
from tests.simulation.service.ports import SimulatedPort
from tests.simulation.service.storage import SimulatedStorage
from tests.simulation.service.table_calls import TableCalls, TablePort


@dataclass(slots=True, kw_only=True)
class Naps:
    """The share of storage calls after which the machine of an embedding program sleeps, how long, and how often yet.

    `stop_monotonic` is what the monotonic clock does meanwhile.
    """

    rate: float
    duration_ms: tuple[float, float]
    stop_monotonic: bool
    left: int


class SimulatedInstance:
    """One function instance. It serves one request at a time, as in Lambda."""

    def __init__(self, state: RunState, storage: SimulatedStorage, number: int) -> None:
        self.name = f"i{number}"
        self.state = state
        self.storage = storage
        self.is_dead = False
        self.is_busy = False
        self.frozen_until_ms: float | None = None
        self.remembered_at_answer: str | None = None
        self.naps: Naps | None = None  # of the request that it serves
        self._held: dict[Task, None] = {}
        self.timeout_at_ms = float("inf")
        self.on_death: Callable[[], object] = lambda: None
        self.clock = SimulatedClock(self, state.scheduler.random.uniform(-CLOCK_SKEW_MS, CLOCK_SKEW_MS))
        self.executor = SimulatedExecutor(state.scheduler, self)
        runtime = Runtime(clock=self.clock, entropy=SimulatedEntropy(state.scheduler), executor=self.executor)
        calls = TableCalls(self, storage, storage.tables)

        def wrapped(port: Any, label: str) -> Any:
            return TablePort(port, label, calls) if label in calls.stores else SimulatedPort(port, label, self)

        self.instance = Instance.new(storage.stores_as(wrapped, calls.stores), runtime)

    def freeze(self, duration_ms: float, *, stops_monotonic: bool) -> None:
        """Freeze the instance until a request comes, which is after `duration_ms` at the earliest."""
        self.state.count("freeze")
        self.state.scheduler.note("freezes", self.name, duration_ms)
        self.frozen_until_ms = self.state.scheduler.now_ms + duration_ms
        self.clock.freeze(stops_monotonic=stops_monotonic)

    def freeze_busy(self, duration_ms: float, *, stops_monotonic: bool) -> None:
        """Freeze the instance while it serves a request, which goes on after `duration_ms`. Its timer freezes, too."""
        if self.frozen_until_ms is None and not self.is_dead:
            self.freeze(duration_ms, stops_monotonic=stops_monotonic)
            self.timeout_at_ms += duration_ms
            self.state.scheduler.spawn(f"thaw {self.name}", self.thaw, delay_ms=duration_ms)

    def nap_perhaps(self) -> None:
        """Sleep between two storage calls, if the request is that of an embedding program."""
        naps, random = self.naps, self.state.scheduler.random
        if naps is None or not naps.left or self.state.faults.is_calm or random.random() >= naps.rate:
            return
        if self.frozen_until_ms is None and self.state.faults.strikes("nap"):
            naps.left -= 1
            duration_ms = random.uniform(*naps.duration_ms)
            scheduler = self.state.scheduler
            scheduler.sleeps_until_ms = max(scheduler.sleeps_until_ms, scheduler.now_ms + duration_ms)
            self.freeze_busy(duration_ms, stops_monotonic=naps.stop_monotonic)

    def thaw(self) -> None:
        """Let the stragglers of earlier requests go on."""
        if self.frozen_until_ms is not None:
            self.state.scheduler.note("thaws", self.name)
            self.frozen_until_ms = None
            self.clock.thaw()
            for task in list(self._held):
                self.state.scheduler.wake(task)

    def hold(self) -> None:
        """Wait while the instance is frozen."""
        while self.frozen_until_ms is not None:
            task = self.state.scheduler.current
            self._held[task] = None
            self.state.scheduler.block()
            del self._held[task]

    def remembered(self) -> str:
        """What the instance remembers of zones, as text. Only a request of its own may change that."""
        health, latency = self.instance.zone_health, self.instance.zone_latency
        return f"{health._failures} {latency._times}"

    def check_states_of(self, segment_id: SegmentId) -> None:
        """Check that the zone states by which the instance puts a new segment are young by its wall clock."""
        seen = self.instance.zone_cache._remembered
        if seen is not None:
            age_ms = segment_time_ms(segment_id) - seen[0].wall_ms
            expect(age_ms <= REMEMBERED_MS_MAX, f"{self.name} puts by zone states that are {age_ms} ms old")

    def check_alive(self) -> None:
        """Raise Killed if the instance has ended, or ends now by its time-out."""
        if not self.is_dead and self.is_busy and self.state.scheduler.now_ms >= self.timeout_at_ms:
            self.state.count("function timeout")
            self.die()
        if self.is_dead:
            raise Killed

    def kill(self) -> NoReturn:
        """End the instance, and the task that calls this."""
        self.die()
        raise Killed

    def die(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.state.scheduler.note("dies", self.name)
            self.executor.wake_all()
            self.on_death()


class SimulatedClock(SchedulerClock):
    """The clock of one instance: simulated time, with a wall clock that is up to half a second wrong."""

    def __init__(self, instance: SimulatedInstance, skew_ms: float) -> None:
        super().__init__(instance.state.scheduler)
        self._instance = instance
        self._skew_ms = skew_ms
        self._stopped_at_ms: float | None = None
        self._stood_still_ms = 0.0

    def freeze(self, *, stops_monotonic: bool) -> None:
        """Let the monotonic clock stand still, or let it count the freeze, as Lambda's does."""
        self._stopped_at_ms = super().monotonic_ms() if stops_monotonic else None

    def thaw(self) -> None:
        if self._stopped_at_ms is not None:
            self._stood_still_ms += super().monotonic_ms() - self._stopped_at_ms

    def now_ms(self) -> int:
        return int(EPOCH_MS + self._skew_ms + super().monotonic_ms())

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() - self._stood_still_ms

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        self._instance.hold()
        self._instance.check_alive()
