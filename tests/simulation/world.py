"""One simulated world: stores, function instances, what is known of both, and the way clients call the service."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

from penstock_broker.adapters.memory import MemoryRepairQueue, MemorySegmentStore, memory_broker
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.directory import TopicDirectory
from penstock_broker.events import Events
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.held_segments import HeldSegments
from penstock_broker.zone_directory import ZoneDirectory
from penstock_broker.zone_health import ZoneHealth
from penstock_broker.zone_latency import ZoneLatency
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import LOG_START_GRACE_MS
from penstock_core.quorum import Acks
from penstock_core.repair import Repair
from tests.broker.interleaving import InOrder
from tests.simulation.claims import Claims
from tests.simulation.deliveries import StreamedHead
from tests.simulation.faults import FaultPlan
from tests.simulation.instance import EPOCH_MS, FUNCTION_TIMEOUT_MS, Instance, Killed, SimulatedChance, SimulatedPort
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import Story
from tests.simulation.truth import Truth, head_appended_to

T = TypeVar("T")

# Of log starts, as it is, and of the sweep: no function here takes longer from its put to its update (30 s, and a write
# that is 20 s late). A day is far more than that to a real one; here it is just enough.
GRACE_MS = LOG_START_GRACE_MS
_API_TIMEOUT_MS = 29_000.0
_INSTANCES_MAX = 6


class World:
    """Everything of one run. `stores` is a broker on the bare stores: calls through it are never disturbed."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.faults = FaultPlan.chosen(self.scheduler.random)
        self.stores = memory_broker(
            clock=_StoppedClock(self.scheduler), chance=SimulatedChance(self.scheduler), parallel=InOrder()
        )
        self.truth = Truth(self)
        self.claims = Claims()
        self.story = Story(self.scheduler)
        self.counts: Counter[str] = Counter()
        self.zone_trouble: dict[str, str] = {}
        self.lost_answer_rate = self.scheduler.random.choice([0.0, 0.01, 0.05])
        self.topics: dict[str, int] = {}  # those that workloads have made, with their partitions
        self.stream: list[StreamedHead] = []  # of the log table, as far as `replicate` has not handled it
        self.lasts_ms = 0.0  # how long clients go on at least, for workloads that take minutes
        self.acks_allowed: tuple[Acks, ...] = tuple(Acks)[::-1]
        self.observers: list[Callable[[str, str, tuple[Any, ...], Any], None]] = []  # of every effect
        self.final_checks: list[Callable[[], None]] = []  # of workloads, when nothing fails any more
        self.is_over = False  # clients that never end by themselves end now
        self._working = 0
        self._instances: list[Instance] = []
        self._instance_count = 0
        self._stream_number = 0
        self._bursts_ms: list[float] = []

    def zone(self, name: str) -> MemorySegmentStore:
        [store] = [store for store in self.stores.zones if store.zone == name]
        assert isinstance(store, MemorySegmentStore)
        return store

    @property
    def repairs(self) -> list[Repair]:
        """What waits in the repair queue."""
        assert isinstance(self.stores.repair_queue, MemoryRepairQueue)
        return self.stores.repair_queue.repairs

    def topic(self, name: str, partitions: int, **config: int | str) -> str:
        """A topic that is there from the beginning."""
        self.truth.topic_created(create_topic(self.stores, name, partitions, config))
        if not config:
            self.topics[name] = partitions
        return name

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def work(self, name: str, run: Callable[[], object], *, delay_ms: float = 0.0) -> None:
        """A client that comes to an end by itself; when all have, `is_over` tells the others."""
        self._working += 1

        def until_done() -> None:
            run()
            self._working -= 1
            self.is_over = not self._working

        self.scheduler.spawn(name, until_done, delay_ms=delay_ms)

    def call(self, run: Callable[[Broker], T], *, is_read: bool) -> T:
        """Call the service as a client does: some function instance runs the use case; the answer may be lost."""
        scheduler = self.scheduler
        scheduler.pause(self.faults.latency())
        instance = self._free_instance()
        instance.is_busy = True
        instance.timeout_at_ms = scheduler.now_ms + FUNCTION_TIMEOUT_MS
        caller = scheduler.current
        answer: list[Any] = []

        def request() -> None:
            try:
                answer.append(run(instance.broker))
            except PenstockError as error:
                answer.append(error)
            except Killed:
                pass
            instance.is_busy = False
            scheduler.wake(caller)

        instance.on_death = partial(scheduler.wake, caller)
        deadline_ms = scheduler.now_ms + _API_TIMEOUT_MS
        scheduler.spawn(f"{instance.name}:{caller.name}", request, owner=instance)
        while not answer and not instance.is_dead and scheduler.now_ms < deadline_ms:
            scheduler.block(deadline_ms - scheduler.now_ms)
        instance.on_death = _nobody_cares
        scheduler.pause(self.faults.latency())
        if not answer or (not self.faults.is_calm and scheduler.random.random() < self.lost_answer_rate):
            self.count("lost answer" if answer else "no answer")
            raise PenstockError(ErrorCode.INTERNAL, "simulated: the service did not answer", maybe_applied=not is_read)
        if isinstance(answer[0], PenstockError):
            raise answer[0]
        result: T = answer[0]
        return result

    def apply(self, label: str, method: str, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """The moment at which a storage call takes effect: its result, or the error that the store answers."""
        trouble = self.zone_trouble.get(label)
        if trouble is not None:
            self.count(f"zone {trouble}")
            if trouble == "hangs":
                self.scheduler.pause(self.scheduler.random.uniform(1_000.0, 10_000.0))
            return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"simulated: {label} {trouble}")
        try:
            outcome = effect()
        except PenstockError as error:
            outcome = error
        self.truth.observe(label, method, arguments, outcome)
        for observe in self.observers:
            observe(label, method, arguments, outcome)
        if label == "transactions" and method == "commit" and outcome is True:
            heads = self.stores.log.heads([*arguments[0].refs])
            for key in (key for key, owed in arguments[0].unconfirmed.items() if owed):
                self._stream_number += 1
                self.stream.append(StreamedHead(number=self._stream_number, key=key, head=heads[key]))
        if label == "log" and (head := head_appended_to(method, outcome)) and arguments[2]:
            self._stream_number += 1
            self.stream.append(StreamedHead(number=self._stream_number, key=arguments[0], head=head))
        return outcome

    def later(self) -> float:
        """When in a run that takes minutes another producer begins, which is when things begin to race again."""
        self._bursts_ms.append(self.scheduler.random.uniform(0.3, 1.0) * self.lasts_ms)
        return self._bursts_ms[-1]

    def pause_until_burst(self) -> None:
        """Until just before or after one of the producers begins that are still to come; not at all without any."""
        ahead = [at_ms - self.scheduler.now_ms for at_ms in self._bursts_ms if at_ms > self.scheduler.now_ms]
        if ahead:
            pause_ms = self.scheduler.random.choice(ahead) + self.scheduler.random.uniform(-200.0, 600.0)
            self.scheduler.pause(max(0.0, pause_ms))

    def jump(self, duration_ms: float) -> None:
        """Let time go by while nothing runs."""
        self.scheduler.now_ms += duration_ms

    def undisturbed(self) -> Broker:
        """The service on stores that never fail, for when the run is over; each call is observed like all others."""
        zones = [_ObservedPort(store, f"zone {store.zone}", self) for store in self.stores.zones]
        ports: dict[str, Any] = {name: _ObservedPort(store, name, self) for name, store in self._ports()}
        return replace(self.stores, **ports, zones=zones)

    def _ports(self) -> list[tuple[str, Any]]:
        """Every store but the zones, by its name in a broker."""
        stores = [(each.name, getattr(self.stores, each.name)) for each in fields(self.stores)]
        return [(name, store) for name, store in stores if type(store).__name__.startswith("Memory")]

    def broker_for(self, instance: Instance) -> Broker:
        """The service as a new function instance has it: the same stores, nothing remembered."""
        stores = {name: SimulatedPort(store, name, instance) for name, store in self._ports()}
        changes: dict[str, Any] = {
            **stores,
            "zones": [SimulatedPort(store, f"zone {store.zone}", instance) for store in self.stores.zones],
            "parallel": instance.parallel,
            "clock": instance.clock,
            "chance": SimulatedChance(self.scheduler),
            "directory": TopicDirectory(stores["topics"], instance.clock),  # type: ignore[arg-type]
            "group_directory": GroupDirectory(stores["memberships"], instance.clock),  # type: ignore[arg-type]
            "zone_directory": ZoneDirectory(stores["zone_states"], instance.clock),  # type: ignore[arg-type]
            "latency": ZoneLatency(),
            "health": ZoneHealth(),
            "events": Events(),
            "held": HeldSegments(),
        }
        return replace(self.stores, **changes)

    def _free_instance(self) -> Instance:
        self._instances = [instance for instance in self._instances if not instance.is_dead]
        free = [instance for instance in self._instances if not instance.is_busy]
        if not free or (len(self._instances) < _INSTANCES_MAX and self.scheduler.random.random() < 0.1):
            self._instance_count += 1
            free = [Instance(self, self._instance_count)]
            self._instances += free
        return self.scheduler.random.choice(free)


class _ObservedPort:
    """A store whose calls take no time and never fail, and are observed."""

    def __init__(self, port: Any, label: str, world: World) -> None:
        self._port = port
        self._label = label
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, method: str, effect: Callable[..., Any], *arguments: Any) -> Any:
        outcome = self._world.apply(self._label, method, partial(effect, *arguments), arguments)
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome


class _StoppedClock:
    """The simulation's time, for calls that take none."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now_ms)

    def monotonic_ms(self) -> float:
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError("nothing waits on the bare stores")


def _nobody_cares() -> None:
    pass
