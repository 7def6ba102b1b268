"""A function instance: the service with a memory of its own, its storage calls, its freezes, and its death.

request task --storage call--> send .. effect .. reply     each `..` lets other tasks run
     |                                                     a dead caller's call may still take effect
     '-- parallel calls: tasks of the same instance, stragglers of earlier requests among them

A frozen instance runs no code: requests that have left take effect, and their answers wait for the thaw.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, segment_time_ms
from penstock_core.zones.zone_state import REMEMBERED_MS_MAX
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from tests.simulation.engine.executor import Killed, SimulatedExecutor
from tests.simulation.engine.faults import Fault
from tests.simulation.engine.run_state import RunState
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import SchedulerClock, SimulatedEntropy
from tests.simulation.engine.timing import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.storage import SimulatedStorage

_GIVE_UP_MS = 1_000.0

# A read has no effect. The AWS adapters send a repeatable write again after a lost answer.
READS = {
    *(
        "get",
        "list",
        "heads",
        "pages",
        "pages_before",
        "evicted_producer",
        "stages",
        "committed",
        "get_pass",
        "get_whole",
    ),
    *("deleted", "list_keys", "list_folders", "leases", "find_leases", "get_group", "find_groups", "registered"),
    *("members", "find_members", "get_target", "retired", "find_merged", "find_states", "list_groups"),
    "hidden_groups",
    *("get_subscription", "list_subscriptions", "orphaned_states", "subscriptions_of", "find_lane", "find_deliveries"),
    *("states_of", "claims", "entries", "is_registered", "get_wholes"),
}
REPEATABLE = {
    *(f"zone.{method}" for method in ("put", "overwrite", "delete")),
    *(f"topics.{method}" for method in ("begin", "create", "give_up", "note_heads_removed", "forget_deleted")),
    *(f"log.{method}" for method in ("create_head", "delete_head", "raise_log_start", "mark_stored")),
    *(f"log.{method}" for method in ("put_page", "replace_page", "shorten_tail", "put_evicted", "remove_producers")),
    *(f"log.{method}" for method in ("note_log_start", "delete_page", "append_in_sequence")),
    *(f"cursors.{method}" for method in ("put", "clear")),
    *(f"transactions.{method}" for method in ("put_stage", "commit")),
    *(f"memberships.{method}" for method in ("unregister", "touch_member", "remove_member")),
    *(f"memberships.{method}" for method in ("put_target", "remove_targets", "delete_group")),
    *(f"archive.{method}" for method in ("put", "upload", "delete")),
    *(f"inline.{method}" for method in ("put", "delete")),
    *(f"share.{method}" for method in ("update", "create_state", "begin_state", "begin_states")),
    *(f"share.{method}" for method in ("forget_group", "delete_state")),
    *(f"push.{method}" for method in ("put_lane", "put_delivery", "note_orphans", "forget_orphans", "delete_states")),
    *("quotas.put_claim", "quotas.drop_claim", "quotas.forget_claim", "audit.put", "audit.forget"),
    "transactions.move",
    "compaction.swap",
    "compaction.move_tail",
    "groups.delete_lease",
    "wake_ups.publish",
    "log.arm",
    "log.arm_push",
}


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
        self.instance = Instance.new(storage.stores_as(lambda port, label: SimulatedPort(port, label, self)), runtime)

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

    def die(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.state.scheduler.note("dies", self.name)
            self.executor.wake_all()
            self.on_death()


class SimulatedPort:
    """A store of one instance. Every call is sent, takes effect and is answered at three different times."""

    def __init__(self, port: Any, label: str, instance: SimulatedInstance) -> None:
        self._port = port
        self._label = label
        self._kind = label.split()[0]
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, method: str, effect: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        instance, storage = self._instance, self._instance.storage
        scheduler, faults = instance.state.scheduler, instance.state.faults
        instance.hold()
        instance.check_alive()
        if self._label in storage.sure:
            return storage.apply(self._label, method, partial(effect, *arguments, **named), arguments)
        is_write = method not in READS
        if method == "upload":  # the instance reads the body before it sends it
            arguments = (arguments[0], [*arguments[1]])
            effect = getattr(self._port, method)
            instance.check_alive()
        put = None
        if self._kind == "zone" and method == "put":
            if arguments[0] not in storage.oracle.log.bodies:  # not a copy that a repair puts
                instance.check_states_of(arguments[0])
            put = storage.oracle.begin_put(instance.name, self._label, arguments[0])
        fault = faults.draw(is_write=is_write, is_repeatable=f"{self._kind}.{method}" in REPEATABLE)
        scheduler.note(f"{self._label}.{method}" + (f" ({fault.value})" if fault else ""), *arguments)
        if fault is Fault.KILLED_BEFORE:
            self._kill()
        scheduler.pause(faults.slowness() if fault is Fault.SLOW else faults.latency(method))
        if instance.is_dead and scheduler.random.random() < 0.5:
            raise Killed  # the request never left
        run = partial(storage.apply, self._label, method, partial(effect, *arguments, **named), arguments)
        if fault is Fault.REFUSED:
            outcome: Any = _refused(self._label, method, scheduler.random.random())
        elif fault is Fault.LOST_REQUEST:
            outcome = _lost(self._label, method, is_write=is_write)
        elif fault is Fault.LATE:
            delay_ms = scheduler.random.uniform(0.0, faults.late_ms)
            scheduler.spawn(f"late {self._label}", run, delay_ms=delay_ms)
            scheduler.pause(_GIVE_UP_MS)
            outcome = _lost(self._label, method, is_write=is_write)
        else:
            outcome = run()
            if fault is Fault.REPEATED:
                scheduler.pause(faults.slowness())
                outcome = run()
            elif fault is Fault.LOST_REPLY:
                outcome = _lost(self._label, method, is_write=is_write)
            elif fault is Fault.KILLED_AFTER:
                self._kill()
        scheduler.pause(faults.latency())
        if put is not None and not isinstance(outcome, PenstockError):
            put.confirmed_ms = scheduler.now_ms
        instance.nap_perhaps()
        instance.hold()
        instance.check_alive()
        if isinstance(outcome, PenstockError):
            raise outcome
        return list(outcome) if isinstance(outcome, Iterator) else outcome

    def _kill(self) -> None:
        self._instance.die()
        raise Killed


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


def _refused(label: str, method: str, chance: float) -> PenstockError:
    code = ErrorCode.THROTTLED if chance < 0.5 else ErrorCode.STORAGE_UNAVAILABLE
    return PenstockError(code, f"simulated: {label}.{method} was refused")


def _lost(label: str, method: str, *, is_write: bool) -> PenstockError:
    message = f"simulated: {label}.{method} was not answered"
    # The caller of a put owns the segment's id, so it may treat an unconfirmed put as never applied.
    maybe_applied = is_write and not label.startswith(("zone", "archive"))
    return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, message, maybe_applied=maybe_applied)
