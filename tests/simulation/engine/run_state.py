"""The state that all parts of one run share, and the history of what its clients saw."""

from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO

from penstock_service.adapters.memory.service import MemorySegmentStore
from penstock_service.stores import Stores
from tests.history.checker import Options, check
from tests.history.recorder import Recorder
from tests.history.report import Report
from tests.simulation.engine.claims import Claims
from tests.simulation.engine.faults import FaultPlan
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS


class RunHistory:
    """The history of one run, kept in memory."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._stream = BytesIO()
        self.recorder = Recorder(self._stream, now_ns=lambda: int(scheduler.now_ms * 1_000_000))

    def judge(self, *, everything_was_read: bool) -> Report:
        """Check the history. Copies that a producer's own retries explain are allowed: not all are idempotent."""
        options = Options(
            allow_retry_duplicates=True,
            allow_unseen=not everything_was_read,
            clock_skew_ns=int(2 * CLOCK_SKEW_MS * 1_000_000),  # one instance's clock may be ahead, and another's behind
        )
        return check(self.lines(), options)

    def lines(self) -> list[bytes]:
        return self._stream.getvalue().splitlines(keepends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Time and chance, faults, the bare stores, and the records of what clients saw."""

    scheduler: Scheduler
    faults: FaultPlan
    stores: Stores
    claims: Claims
    history: RunHistory
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, what: str) -> None:
        """Count one event of this kind."""
        self.counts[what] += 1

    def zone(self, name: str) -> MemorySegmentStore:
        """The bare store of a zone."""
        [store] = [store for store in self.stores.zones if store.zone == name]
        assert isinstance(store, MemorySegmentStore)
        return store
