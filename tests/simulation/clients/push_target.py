"""The target of a simulated subscription: it handles records, or is slow, throttles, breaks, dies, or answers late."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch, PushRecord
from tests.simulation.oracle.pushes import PushOracle, is_poison
from tests.simulation.service.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHabits:
    """How a target behaves. Between two times it fails as `outage` says at `outage_rate`, else at `failure_rate`.

    `names_poison`: it names the record that it cannot handle, and handles all others. If not, the whole batch fails.
    """

    work_ms: tuple[float, float]
    failure_rate: float
    outage: Failure
    outage_rate: float
    outage_ms: tuple[float, float]
    names_poison: bool


class PushTarget:
    """Answers the deliveries of one subscription."""

    def __init__(self, simulation: Simulation, oracle: PushOracle, habits: TargetHabits) -> None:
        self._simulation = simulation
        self._oracle = oracle
        self._habits = habits
        self.failures = 0

    def answer(self, batch: PushBatch) -> Answer:
        """Handle the batch, and answer."""
        simulation, habits = self._simulation, self._habits
        self._oracle.batches += 1
        if not simulation.faults.is_calm:
            random = simulation.scheduler.random
            simulation.scheduler.pause(random.uniform(*habits.work_ms))
            is_out = habits.outage_ms[0] <= simulation.scheduler.now_ms < habits.outage_ms[1]
            if is_out and random.random() < habits.outage_rate:
                return self._fails(habits.outage, "outage")
            if random.random() < habits.failure_rate and simulation.faults.strikes("target failure"):
                kind = random.choice(["throttled", "broken", "late", "partly"])
                if kind == "late":
                    self._handle(batch.records)
                elif kind == "partly":
                    self._handle(batch.records[: len(batch.records) // 2])
                return self._fails(Failure.AWAY if kind == "throttled" else Failure.BROKEN, kind)
        return self._handle(batch.records)

    def _fails(self, failure: Failure, kind: str) -> Failed:
        self.failures += 1
        self._simulation.count(f"push {kind}")
        return Failed(failure=failure, error=f"simulated: {kind}")

    def _handle(self, records: Sequence[PushRecord]) -> Answer:
        bad = [each for each in records if self._oracle.has_poison and is_poison((each.record.value or b"").decode())]
        if not bad:
            self._oracle.handle(records)
            return Answered()
        self.failures += 1
        self._simulation.count("push poison")
        if self._habits.names_poison:
            self._oracle.handle([each for each in records if each not in bad])
            return Answered(failed=frozenset(each.place for each in bad), error="simulated: poison")
        return Failed(failure=Failure.REFUSAL, error="simulated: poison")
