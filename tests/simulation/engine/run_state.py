"""The state that all parts of one run share."""

from collections import Counter
from dataclasses import dataclass, field

from penstock_service.adapters.memory.segments import MemorySegmentStore
from penstock_service.stores import Stores
from tests.simulation.engine.claims import Claims
from tests.simulation.engine.faults import FaultPlan
from tests.simulation.engine.run_history import RunHistory
from tests.simulation.engine.scheduler import Scheduler


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
