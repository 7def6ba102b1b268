"""The target of a simulated subscription: it handles records, or is slow, throttles, breaks, or answers late.

The delivery that calls it may die meanwhile, by chance or of the records, and may freeze and go on later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenlet import getcurrent

from penstock_core.limits import PUSH_TARGET_MS
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch, PushRecord
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.scheduler import Task
from tests.simulation.oracle.push_attempts import Attempt
from tests.simulation.oracle.pushes import PushOracle
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation

_POISON, _LETHAL = "47", "4"  # last digits of values
_KINDS = {
    "throttled": Failure.AWAY,
    "broken": Failure.BROKEN,
    "refused": Failure.REFUSAL,
    "late": Failure.BROKEN,
    "partly": Failure.BROKEN,
    "hanging": Failure.BROKEN,
}
_HANGS_AT_MOST_MS = 40_000.0  # after the answer was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHabits:
    """How a target behaves. Between two times it fails as `outage` says at `outage_rate`, else at `failure_rate`.

    - `has_poison`: it cannot handle some records.
    - `names_poison`: it names the records that it cannot handle, and handles all others. If not, the whole batch fails.
    - `is_lethal`: some poison kills the delivery that sends it.
    - `death_rate`: the delivery dies while it waits for the answer; at `freeze_rate` it freezes.
    """

    work_ms: tuple[float, float]
    failure_rate: float
    outage: Failure
    outage_rate: float
    outage_ms: tuple[float, float]
    has_poison: bool
    names_poison: bool
    is_lethal: bool
    death_rate: float
    freeze_rate: float


class PushTarget:
    """Answers the deliveries of one subscription."""

    def __init__(self, simulation: Simulation, habits: TargetHabits) -> None:
        self._simulation = simulation
        self._habits = habits
        self.failures = 0

    def answer(self, oracle: PushOracle, batch: PushBatch, attempt: Attempt) -> Answer:
        """Handle the batch, and answer. `oracle` is that of the subscription which sends it."""
        if not self._simulation.faults.is_calm:
            kind = self._trouble()
            if kind:
                return self._fails(oracle, batch, attempt, kind)
        return self._handle(oracle, batch.records, attempt)

    def _trouble(self) -> str:
        """Take the time that it takes, and tell what goes wrong, "" for nothing."""
        simulation, habits, random = self._simulation, self._habits, self._simulation.scheduler.random
        simulation.scheduler.pause(random.uniform(*habits.work_ms))
        instance = _instance()
        if instance is not None:
            instance.check_alive()
            if random.random() < habits.freeze_rate:
                instance.freeze_busy(random.uniform(1_000.0, 120_000.0), stops_monotonic=random.random() < 0.5)
                instance.hold()
                instance.check_alive()
        if habits.outage_ms[0] <= simulation.scheduler.now_ms < habits.outage_ms[1]:
            if random.random() < habits.outage_rate:
                return f"outage {habits.outage.value}"
        elif random.random() < habits.death_rate and simulation.faults.strikes("died at the target"):
            return "died"
        elif random.random() < habits.failure_rate and simulation.faults.strikes("target failure"):
            return random.choice([*_KINDS])
        return ""

    def _fails(self, oracle: PushOracle, batch: PushBatch, attempt: Attempt, kind: str) -> Answer:
        simulation, records = self._simulation, batch.records
        simulation.count(f"push {kind.partition(' ')[0]}")
        if kind == "late":
            oracle.handle(self._good(records))
        elif kind == "partly":
            oracle.handle(self._good(records[: len(records) // 2]))
        elif kind == "hanging":
            good = self._good(records)
            delay_ms = simulation.scheduler.random.uniform(0.0, PUSH_TARGET_MS + _HANGS_AT_MOST_MS)
            simulation.scheduler.spawn("hanging target", lambda: oracle.handle(good), delay_ms=delay_ms)
            simulation.scheduler.pause(PUSH_TARGET_MS)
            instance = _instance()
            if instance is not None:
                instance.check_alive()
        elif kind == "died":
            if simulation.scheduler.random.random() < 0.5:
                oracle.handle(self._good(records))
            self._dies(oracle, batch.records, attempt)
        failure = _KINDS.get(kind) or self._habits.outage
        return self._failed(oracle, attempt, records, Failed(failure=failure, error=f"simulated: {kind}"))

    def _handle(self, oracle: PushOracle, records: Sequence[PushRecord], attempt: Attempt) -> Answer:
        good = self._good(records)
        bad = [each for each in records if each not in good]
        if not bad:
            oracle.handle(records)
            oracle.attempts.succeed(attempt)
            return Answered()
        self._simulation.count("push poison")
        if any(self._habits.is_lethal and _value(each)[-1] in _LETHAL for each in bad):
            self._simulation.count("push lethal")
            self._dies(oracle, records, attempt)
        if not self._habits.names_poison:
            return self._failed(oracle, attempt, records, Failed(failure=Failure.REFUSAL, error="simulated: poison"))
        self.failures += 1
        oracle.handle(good)
        oracle.fail(attempt, bad, Failure.REFUSAL, "simulated: named")
        if good:
            oracle.attempts.succeed(attempt)
        return Answered(failed=frozenset(each.place for each in bad), error="simulated: named")

    def _failed(self, oracle: PushOracle, attempt: Attempt, records: Sequence[PushRecord], failed: Failed) -> Failed:
        self.failures += 1
        oracle.fail(attempt, records, failed.failure, failed.error)
        return failed

    def _dies(self, oracle: PushOracle, records: Sequence[PushRecord], attempt: Attempt) -> None:
        """The delivery that called dies with these records."""
        self.failures += 1
        oracle.fail(attempt, records, None, "")
        self._simulation.count("push died")
        instance = _instance()
        if instance is not None:
            instance.die()
        raise Killed

    def _good(self, records: Sequence[PushRecord]) -> list[PushRecord]:
        """The records that it can handle."""
        return [each for each in records if not (self._habits.has_poison and _value(each)[-1] in _POISON)]


def _instance() -> SimulatedInstance | None:
    """The function instance that calls. At the end of a run there is none."""
    task = getcurrent()
    owner: Any = task.owner if isinstance(task, Task) else None
    return owner if isinstance(owner, SimulatedInstance) else None


def _value(record: PushRecord) -> str:
    return (record.record.value or b"").decode()
