"""The faults of storage calls, their rates, and how long calls take. A run chooses them by its seed."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from tests.simulation.engine.reduction import NOTHING, Reduction


class Fault(Enum):
    """A fault of one operation of a driver, or of one call of a store without driver (service/ports.py)."""

    REFUSED = "refused"  # the call fails before the effect, and says so
    LOST_REQUEST = "lost request"  # the call fails before the effect, and its caller cannot tell
    LOST_REPLY = "lost reply"  # the call takes effect, and its answer is lost
    LATE = "late effect"  # the caller gives up, and then the call takes effect
    REPEATED = "repeated"  # one answer is lost: the adapter sends the write again if it may
    SLOW = "slow"  # the call takes long
    KILLED_BEFORE = "killed before"  # the caller's function instance ends before the effect
    KILLED_AFTER = "killed after"  # the caller's function instance ends after the effect


_SLUGGISH_FACTOR = 40.0

WRITES_ONLY = {Fault.LATE, Fault.REPEATED}


@dataclass(slots=True)
class FaultPlan:
    """The rate of each fault per call, and pauses in milliseconds. `counts` counts the faults that struck."""

    random: Random
    rates: dict[Fault, float] = field(default_factory=dict)
    latency_ms: tuple[float, float] = (1.0, 10.0)
    slow_ms: tuple[float, float] = (50.0, 2_000.0)
    sluggish: str = ""  # a method that always takes long, so that calls that race with it get ahead
    late_ms: float = 20_000.0  # the longest time from its request until a late write takes effect
    is_calm: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    reduction: Reduction = NOTHING
    _bounds: list[tuple[float, Fault]] = field(default_factory=list)

    @classmethod
    def chosen(cls, random: Random) -> "FaultPlan":
        """Draw a profile: some kinds of fault are frequent, some rare, some absent."""
        plan = cls(random)
        plan.latency_ms = random.choice([(0.5, 1.0), (1.0, 10.0), (1.0, 100.0), (5.0, 6.0)])
        plan.sluggish = random.choice(["", "", "put_page", "shorten_tail", "pages", "heads", "append", "put", "get"])
        levels = random.choice([(0.0,), (0.0, 0.005), (0.0, 0.01, 0.03), (0.0, 0.01, 0.08)])
        plan.set_rates({fault: random.choice(levels) for fault in Fault})
        return plan

    def set_rates(self, rates: dict[Fault, float]) -> None:
        self.rates = rates
        self._bounds = []
        total = 0.0
        for fault, rate in rates.items():
            total += rate
            if rate:
                self._bounds.append((total, fault))

    def draw(self, *, is_write: bool, is_repeatable: bool) -> Fault | None:
        """Draw the fault of the next call, or None."""
        drawn = self.random.random()
        if self.is_calm or not self._bounds or drawn >= self._bounds[-1][0]:
            return None
        fault = next(fault for bound, fault in self._bounds if drawn < bound)
        if (fault in WRITES_ONLY and not is_write) or (fault is Fault.REPEATED and not is_repeatable):
            return None
        return fault if self.strikes(fault.value) else None

    def strikes(self, name: str) -> bool:
        """Count a fault that was drawn. False if the run is to do without it."""
        if name in self.reduction.no_faults or self.counts.total() >= self.reduction.faults_max:
            return False
        self.counts[name] += 1
        return True

    def latency(self, method: str = "") -> float:
        """Draw the latency in milliseconds of one way: to the store, or back."""
        low, high = self.latency_ms
        duration_ms = low + (high - low) * self.random.random()
        return duration_ms * _SLUGGISH_FACTOR if method and method == self.sluggish else duration_ms

    def slowness(self) -> float:
        low, high = self.slow_ms
        return low + (high - low) * self.random.random()
