"""One simulated service: its stores, its function instances, the checks on both, and the calls of its clients."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import LOG_START_GRACE_MS
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.log.repair import Look, Repair
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import (
    LOCAL_PLACE,
    MemoryDeliveryQueue,
    MemoryRepairQueue,
    MemoryWakeUps,
)
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.tables.tables import Change
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.topics.create_topic import create_topic
from tests.simulation.engine.claims import Claims
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.faults import FaultPlan
from tests.simulation.engine.reduction import NOTHING, Reduction
from tests.simulation.engine.run_state import RunHistory, RunState
from tests.simulation.engine.scheduler import STEPS_MAX, Scheduler, Task
from tests.simulation.engine.time_and_chance import FUNCTION_TIMEOUT_MS, SchedulerClock, SimulatedEntropy
from tests.simulation.oracle.sure_errors import Request
from tests.simulation.oracle.violation import expect
from tests.simulation.service.instance import Naps, SimulatedInstance
from tests.simulation.service.storage import ObservedPort, SimulatedStorage
from tests.simulation.service.tables import SimulatedTables
from tests.simulation.service.time_to_live import TimeToLive
from tests.support.interleaving import InOrder

T = TypeVar("T")

# The grace of log starts, as in the product, and of the sweep. It is just enough: no simulated function takes longer
# from its put to its update (30 s, and a write that is 20 s late). The product's sweep waits for a day.
GRACE_MS = LOG_START_GRACE_MS
# The zones of each storage profile (docs/protocol/zones), those that are fallbacks, and those that are directory
# buckets.
PROFILES = {"express3": ("abc", "", "abc"), "express2": ("abc", "c", "ab"), "standard1": ("a", "", "")}
_API_TIMEOUT_MS = 29_000.0
_INSTANCES_MAX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezes:
    """The share of answers after which an instance is frozen, how long at least, and what its monotonic clock does."""

    rate: float
    duration_ms: tuple[float, float]
    stop_monotonic: bool


class Simulation:
    """All of one run. `stores` are the bare stores, and `bare` is an instance on them whose calls never fail."""

    def __init__(
        self, seed: int, profile: str = "express3", reduction: Reduction = NOTHING, small: InlineBounds = NO_ITEMS
    ) -> None:
        zones, fallback_zones, hour_zones = PROFILES[profile]
        self.scheduler = Scheduler(seed)
        self.faults = FaultPlan.chosen(self.scheduler.random)
        self.faults.reduction = reduction
        transaction_ms = self.scheduler.random.choice([0.0, 5.0, 50.0])
        self._wake_ups = MemoryWakeUps()
        self._wake_ups.place = None  # until a workload has readers that wait
        tables = SimulatedTables(self.scheduler, self.faults, transaction_ms, self._changed)
        self._time_to_live = TimeToLive(seed, self.scheduler, self.faults, tables.tables)
        self.stores = memory_stores(
            zones,
            fallback_zones=fallback_zones,
            hour_zones=hour_zones,
            small=small,
            wake_ups=self._wake_ups,
        )
        deliveries = MemoryDeliveryQueue(_StoppedClock(self.scheduler))
        self.stores = replace(self.stores, deliveries=deliveries, **tables.bare_stores)
        self.bare = Instance.new(
            self.stores,
            Runtime(clock=_StoppedClock(self.scheduler), entropy=SimulatedEntropy(self.scheduler), executor=InOrder()),
        )
        self.claims = Claims()
        self.history = RunHistory(self.scheduler)
        self.state = RunState(
            scheduler=self.scheduler, faults=self.faults, stores=self.stores, claims=self.claims, history=self.history
        )
        self.recorder = self.history.recorder
        self.counts = self.state.counts
        self.count = self.state.count
        self.zone = self.state.zone
        self.storage = SimulatedStorage(self.state, tables)
        self.oracle = self.storage.oracle
        self.lost_answer_rate = self.scheduler.random.choice([0.0, 0.01, 0.05])
        self.topics: dict[str, int] = {}  # made by workloads, with their numbers of partitions
        self.lasts_ms = 0.0  # the least time that clients go on, for workloads that take minutes
        self.acks_allowed: tuple[Acks, ...] = tuple(Acks)[::-1]
        self.final_checks: list[Callable[[], None]] = []  # of workloads, once faults are over
        self.freezes: Freezes | None = None  # without, instances run on after their answers
        self.naps: Naps | None = None  # without, no instance sleeps in the middle of a request
        self.is_over = False  # clients without an end of their own end now
        self.clients = 0  # that were started by `work`
        self._reduction = reduction
        self._working: set[Task] = set()
        self._calling: set[Task] = set()
        self.scheduler.on_pause = self._end_perhaps
        self.scheduler.steps_max = min(STEPS_MAX, reduction.steps_max)
        self._instances: list[SimulatedInstance] = []
        self._instance_count = 0
        self._bursts_ms: list[float] = []

    @property
    def repairs(self) -> list[Repair]:
        """The messages in the repair queue."""
        assert isinstance(self.stores.repair_queue, MemoryRepairQueue)
        return self.stores.repair_queue.repairs

    @property
    def looks(self) -> list[Look]:
        """The messages there that ask for a later look at a partition."""
        assert isinstance(self.stores.repair_queue, MemoryRepairQueue)
        return self.stores.repair_queue.looks

    def topic(self, name: str, partitions: int, **config: int | str) -> str:
        """Create a topic before the run begins."""
        self.oracle.topic_created(create_topic(self.bare, name, partitions, config))
        if not config:
            self.topics[name] = partitions
        return name

    def use_wake_ups(self, *, is_faulty: bool) -> MemoryWakeUps:
        """Give the service wake-ups. If they are not faulty, each call to publish takes effect at once."""
        self._wake_ups.place = LOCAL_PLACE
        if not is_faulty:
            self.storage.sure.add("wake_ups")
        return self._wake_ups

    def work(self, name: str, run: Callable[[], object], *, delay_ms: float = 0.0) -> None:
        """Start a client that ends by itself. Once all such clients have ended, `is_over` becomes true."""
        number, self.clients = self.clients, self.clients + 1

        def until_done() -> None:
            if number not in self._reduction.no_clients:
                with suppress(_ClientEndsError):
                    run()
            self._working.remove(task)
            self.is_over = not self._working

        task = self.scheduler.spawn(name, until_done, delay_ms=delay_ms)
        self._working.add(task)

    def call(
        self, run: Callable[[Instance], T], *, is_read: bool, timeout_ms: float | None = None, is_judged: bool = True
    ) -> T:
        """Call the service as a client does: a free function instance runs the use case, and the answer may be lost.

        If `is_judged`, an error of a write that does not say `maybe_applied` must be true (oracle/sure_errors.py).

        A function that the API does not call has `timeout_ms`, and its caller waits as long. With naps, any other call
        is that of a program that embeds the service: both sleep together, and the call has no deadline.
        """
        scheduler = self.scheduler
        scheduler.pause(self.faults.latency())
        self._calling.add(scheduler.current)
        try:
            asked = None if is_read or timeout_ms is not None or not is_judged else Request()
            return self._call(run, asked, is_read=is_read, timeout_ms=timeout_ms)
        finally:
            self._calling.remove(scheduler.current)

    def attempt(
        self, what: str, run: Callable[[Instance], T], *, timeout_ms: float | None = None, is_judged: bool = True
    ) -> T | None:
        """Call the service as a client that goes on after an error. The trace names `what` did not happen."""
        try:
            return self.call(run, is_read=False, timeout_ms=timeout_ms, is_judged=is_judged)
        except PenstockError as error:
            self.scheduler.note(what, error)
            return None

    def _call(
        self, run: Callable[[Instance], T], asked: Request | None, *, is_read: bool, timeout_ms: float | None
    ) -> T:
        scheduler = self.scheduler
        instance = self._free_instance()
        instance.thaw()
        instance.is_busy = True
        instance.timeout_at_ms = scheduler.now_ms + (timeout_ms or FUNCTION_TIMEOUT_MS)
        instance.naps = self.naps if timeout_ms is None else None
        caller = scheduler.current
        answer: list[Any] = []

        def request() -> None:
            if instance.remembered_at_answer is not None:
                expect(
                    instance.remembered() == instance.remembered_at_answer,
                    f"{instance.name} remembers {instance.remembered()} of zones after its answer, "
                    f"and {instance.remembered_at_answer} before",
                )
            try:
                answer.append(run(instance.instance))
            except PenstockError as error:
                answer.append(error)
                if asked is not None:
                    asked.failed(error)
            except Killed:
                pass
            instance.is_busy = False
            instance.remembered_at_answer = instance.remembered()
            if self.freezes is not None:
                self._freeze_perhaps(instance, self.freezes)
            scheduler.wake(caller)

        instance.on_death = partial(scheduler.wake, caller)
        deadline_ms = scheduler.now_ms + (timeout_ms or (_API_TIMEOUT_MS if instance.naps is None else inf))
        scheduler.spawn(f"{instance.name}:{caller.name}", request, owner=instance).request = asked
        while not answer and not instance.is_dead and scheduler.now_ms < deadline_ms:
            scheduler.block(None if deadline_ms == inf else deadline_ms - scheduler.now_ms)
        instance.on_death = _ignore_death
        scheduler.pause(self.faults.latency())
        is_lost = bool(answer) and not self.faults.is_calm and scheduler.random.random() < self.lost_answer_rate
        if not answer or (is_lost and self.faults.strikes("lost answer")):
            self.count("lost answer" if answer else "no answer")
            raise PenstockError(ErrorCode.INTERNAL, "simulated: the service did not answer", maybe_applied=not is_read)
        if isinstance(answer[0], PenstockError):
            raise answer[0]
        result: T = answer[0]
        return result

    def let_items_go(self) -> None:
        """DynamoDB removes items that have ended, until the clients have."""
        self._time_to_live.run(lambda: self.is_over, is_true=lambda: self.naps is not None)

    def last_for_days(self) -> None:
        """Let DynamoDB remove items that have ended within hours, in a run whose clients are idle most of the time."""
        self._time_to_live.slow_down()

    def later(self) -> float:
        """Draw the time at which another producer begins, in a run that takes minutes. Races begin again then."""
        self._bursts_ms.append(self.scheduler.random.uniform(0.3, 1.0) * self.lasts_ms)
        return self._bursts_ms[-1]

    def pause_until_burst(self) -> None:
        """Pause until just before or after one of the next producers begins. Without one, do not pause."""
        ahead = [at_ms - self.scheduler.now_ms for at_ms in self._bursts_ms if at_ms > self.scheduler.now_ms]
        if ahead:
            pause_ms = self.scheduler.random.choice(ahead) + self.scheduler.random.uniform(-200.0, 600.0)
            self.scheduler.pause(max(0.0, pause_ms))

    def jump(self, duration_ms: float) -> None:
        """Let time go by while nothing runs."""
        self.scheduler.now_ms += duration_ms

    def keep_marks(self) -> None:
        """Let marks of timers stay for longer than tellings of timers are late."""
        self._time_to_live.keep_marks()

    def undisturbed(self) -> Instance:
        """Make an instance on stores that never fail, for the end of a run. The oracle observes each of its calls."""
        return Instance.new(
            self.storage.stores_as(lambda port, label: ObservedPort(port, label, self.storage), {}),
            self.bare.runtime,
            self.bare.tuning,
        )

    def _changed(self, change: Change) -> None:
        self.storage.changed(change)
        self._time_to_live.changed(change)

    def _end_perhaps(self, task: Task) -> None:
        """End a client of a reduced run. One that has sent a request waits for its answer."""
        is_client = task in self._working and task not in self._calling
        if is_client and self.scheduler.now_ms >= self._reduction.ends_ms:
            raise _ClientEndsError

    def _free_instance(self) -> SimulatedInstance:
        self._instances = [instance for instance in self._instances if not instance.is_dead]
        now_ms = self.scheduler.now_ms
        free = [each for each in self._instances if not each.is_busy and (each.frozen_until_ms or 0.0) <= now_ms]
        if not free or (len(self._instances) < _INSTANCES_MAX and self.scheduler.random.random() < 0.1):
            self._instance_count += 1
            free = [SimulatedInstance(self.state, self.storage, self._instance_count)]
            self._instances += free
        return self.scheduler.random.choice(free)

    def _freeze_perhaps(self, instance: SimulatedInstance, freezes: Freezes) -> None:
        random = self.scheduler.random
        if not instance.is_dead and random.random() < freezes.rate:
            instance.freeze(random.uniform(*freezes.duration_ms), stops_monotonic=freezes.stop_monotonic)


class _ClientEndsError(BaseException):
    """The run is a reduced one, in which the client ends here. No client catches this."""


class _StoppedClock(SchedulerClock):
    """Simulated time, for calls that take no time."""

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError("nothing waits on the bare stores")


def _ignore_death() -> None:
    pass
