"""The invocations of one subscription's target: when one may begin, and which failures lead to the dead letters (G13).

- A record is sent again only by a delivery that took its lane before the answer for the record was stored.
- An invocation begins within its lane's lock, and within that of no other delivery of its partition in ordered mode.
- A record is a dead letter after `attempts_max` failures which count, and only if the target has worked since the
  first of them, or has failed for the whole patience. A death, a freeze or a fault of storage may count as a failure.
  A record with a delivery that ended so may have failed first when nobody saw it: its proof is not judged.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock_core.push.batch import Failure
from penstock_core.push.subscription import PARALLEL, SubscriptionConfig
from penstock_core.share.bury import BurialCause
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS
from tests.simulation.oracle.push_records import Place, PushRecords
from tests.simulation.oracle.violation import expect

_CAUSES = {cause.value for cause in BurialCause}
_OWN_FAULTS = ("target failure", "doubled delivery", "lost message")  # of the workload: no storage call fails by them
_SILENT = ("freeze", "function timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLock:
    """The lock of a lane under which a delivery works: when it was taken, and when it ends, in simulated time."""

    taken_ms: float
    ends_ms: float


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One invocation. It is over when its answer has come; a delivery that died never learns it."""

    places: frozenset[Place]
    began_ms: float
    lock: LaneLock
    is_over: bool = False


@dataclass(slots=True, kw_only=True)
class PushAttempts:
    """The invocations, and what is known of the target by them."""

    records: PushRecords
    config: SubscriptionConfig
    has_moved: bool = False  # the number of lanes has changed: two deliveries may work on a partition then
    failures: Counter[Place] = field(default_factory=Counter)  # those that count
    _first_failed_ms: dict[Place, float] = field(default_factory=dict)
    _errors: dict[Place, set[str]] = field(default_factory=dict)
    _running: list[Attempt] = field(default_factory=list)
    _succeeded_ms: float = -1.0
    _failing_since_ms: float | None = None  # since the last success

    def begin(self, places: frozenset[Place], lock: LaneLock) -> Attempt:
        """A delivery invokes the target."""
        now_ms, name = self.records.simulation.scheduler.now_ms, self.records.name
        attempt = Attempt(places=places, began_ms=now_ms, lock=lock)
        expect(
            now_ms <= lock.ends_ms + CLOCK_SKEW_MS,
            f"{name} invokes at {now_ms}, after its lane's lock at {lock.ends_ms}",
        )
        for place in places:
            passed_ms = self.records.passed_ms.get(place)
            expect(
                passed_ms is None or passed_ms >= lock.taken_ms,
                f"{name} sends {place} again at {now_ms}: done at {passed_ms}, its lane taken at {lock.taken_ms}",
            )
        self._running = [each for each in self._running if not each.is_over and each.lock.ends_ms > now_ms]
        keys = {key for key, _ in places}
        for other in self._running if self.config.mode != PARALLEL and not self.has_moved else ():
            is_same = any(key in keys for key, _ in other.places)
            is_held = other.lock.ends_ms > now_ms + 2 * CLOCK_SKEW_MS
            expect(not (is_same and is_held), f"{name} invokes for {keys} twice at a time: {other} goes on")
        self._running.append(attempt)
        return attempt

    def succeed(self, attempt: Attempt) -> None:
        """The target has told that it has handled at least some of the records."""
        attempt.is_over = True
        self._succeeded_ms = self.records.simulation.scheduler.now_ms
        self._failing_since_ms = None

    def fail(self, attempt: Attempt, places: Iterable[Place], failure: Failure | None, error: str) -> None:
        """Those records have failed; `failure` is None if the function died of them."""
        if attempt.places == frozenset(places) and self._failing_since_ms is None:
            self._failing_since_ms = attempt.began_ms
        attempt.is_over = failure is not None
        for place in places:
            self._first_failed_ms.setdefault(place, attempt.began_ms)
            self._errors.setdefault(place, set()).add(error)
            self.failures[place] += failure is not Failure.AWAY

    def check_burial(self, place: Place, reason: str, deliveries: int) -> None:
        """Check that the record may go to the dead letters now, after so many deliveries."""
        name, failures, slack = self.records.name, self.failures[place], self._slack()
        attempts_max = self.config.attempts_max
        expect(attempts_max is not None, f"{name} dead-letters {place}, and has no bound of attempts")
        assert attempts_max is not None
        told = f"{name} dead-letters {place} for {reason!r}"
        expect(failures + slack >= attempts_max, f"{told} after {failures} of {attempts_max} failures")
        is_told = reason in self._errors.get(place, ())
        expect(is_told or (slack > 0 and reason in _CAUSES), f"{told}: no attempt has failed like that")
        # An attempt that died before it reached the target counts, and is unknown here: so is the first failure's time.
        has_died = failures < deliveries or (self.config.mode == PARALLEL and reason in _CAUSES)
        if place not in self._first_failed_ms or has_died:
            expect(slack > 0, f"{told}, and no delivery has died of it")
            return
        first_ms = self._first_failed_ms[place]
        now_ms = self.records.simulation.scheduler.now_ms
        since_ms = self._succeeded_ms if slack else self._failing_since_ms  # a death may have begun it
        is_patient = since_ms is not None and now_ms - since_ms >= self.config.patience_ms - 2 * CLOCK_SKEW_MS
        expect(
            self._succeeded_ms >= first_ms or is_patient,
            f"{told}: nothing succeeded since its first failure at {first_ms}, all has failed since {since_ms} only",
        )

    def _slack(self) -> int:
        """The deaths, freezes and faults of storage, each of which may have made an attempt fail or be unknown."""
        simulation = self.records.simulation
        faults = simulation.faults.counts.total() - sum(simulation.faults.counts[name] for name in _OWN_FAULTS)
        return faults + sum(simulation.counts[name] for name in (*_SILENT, "push died"))
