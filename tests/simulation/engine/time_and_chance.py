"""Times of the simulation, and the clock and the random bytes of what runs without an instance of its own."""

from tests.simulation.engine.scheduler import Scheduler

EPOCH_MS = 1_700_000_000_000  # the wall time at which each run begins
CLOCK_SKEW_MS = 500.0  # the largest error of an instance's clock, either way
FUNCTION_TIMEOUT_MS = 30_000.0
SEGMENT_PREFIX_FIRST = 240  # segments use 16 of the 256 prefixes, so that a sweep of all is short


class SchedulerClock:
    """Simulated time, exactly."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now_ms)

    def monotonic_ms(self) -> float:
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._scheduler.pause(duration_ms)


class SimulatedEntropy:
    """Random bytes from the run's seed. The last byte has its high bits set: it is the key prefix of a segment's id."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def random_bytes(self, count: int) -> bytes:
        drawn = self._scheduler.random.randbytes(count)
        return drawn[:-1] + bytes([drawn[-1] | SEGMENT_PREFIX_FIRST])
