"""One run: it takes a seed, and gives the result."""

import gc
import hashlib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

from penstock_core.log.inline import InlineBounds
from penstock_core.log.topic import TOPIC_BOUNDS
from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.producer import count_outcomes
from tests.simulation.engine.reduction import NOTHING, Reduction
from tests.simulation.engine.scheduler import TraceEntry, format_entry
from tests.simulation.oracle.violation import ViolationError
from tests.simulation.service.simulation import Simulation
from tests.simulation.verdict.verdict import judge
from tests.simulation.workloads import MIXED, OF_ZONES, WORKLOADS, choose
from tests.simulation.workloads.producing import inline_bytes_max

_FILE = Path(__file__).with_name("regressions.txt")


# Topics here keep less than the API allows, as runs are short.
_BOUNDS = {name: (0, TOPIC_BOUNDS[name][1]) for name in ("retention_ms", "retention_bytes", "delete_retention_ms")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run. `failure` is None, or names the promise that was broken."""

    seed: int
    profile: str
    workloads: tuple[str, ...]
    reduction: Reduction = NOTHING
    clients: int  # that the workloads have started
    steps: int
    ended_ms: float  # the simulated time at the end
    struck: frozenset[str]  # the kinds of fault that struck
    faults: Counter[str]
    acknowledged: int
    maybe: int
    failed: int
    lost: int  # acknowledged records that are in no log
    duplicates: int  # copies of records beyond the first, left by retries
    failure: str | None = None
    trace: list[TraceEntry] = field(repr=False, default_factory=list)

    def tail(self, lines: int) -> str:
        """The end of the trace."""
        return "\n".join(map(format_entry, self.trace[-lines:]))

    def digest(self) -> str:
        """A hash of the whole trace."""
        return hashlib.sha256("\n".join(map(format_entry, self.trace)).encode()).hexdigest()


def run(seed: int, workload: str = MIXED, profile: str = "express3", reduction: Reduction = NOTHING) -> Result:
    """Run one seed. `workload` is a name, several joined by commas, or "mixed", where the seed chooses.

    A profile with one zone leaves out the workloads that spoil or move zones.
    """
    names = choose(Random(seed)) if workload == MIXED else workload.split(",")
    if profile == "standard1":
        names = [name for name in names if name not in OF_ZONES]
    simulation = Simulation(seed, profile, reduction, _bounds(seed, names))
    simulation.scheduler.spawn("time to live", simulation.let_items_go)
    if "zone_loss" in names:  # a record with one copy only may be lost when the simulation destroys that copy
        simulation.acks_allowed = (Acks.QUORUM, Acks.ALL)
    with _no_collection(), patch.dict(TOPIC_BOUNDS, _BOUNDS):
        for name in sorted(names, key=list(WORKLOADS)[::-1].index):
            WORKLOADS[name](simulation)
        failure = _failure_of(simulation)
    ended_ms = simulation.scheduler.now_ms
    outcomes = count_outcomes(simulation)
    return Result(
        seed=seed,
        profile=profile,
        workloads=tuple(names),
        reduction=reduction,
        clients=simulation.clients,
        steps=simulation.scheduler.steps,
        ended_ms=ended_ms,
        struck=frozenset(simulation.faults.counts),
        faults=simulation.faults.counts + simulation.counts,
        acknowledged=outcomes["acknowledged"],
        maybe=outcomes["maybe"],
        failed=outcomes["failed"],
        lost=sum(
            bool(sent.acked) and value not in simulation.oracle.log.places
            for value, sent in simulation.claims.sent.items()
        ),
        duplicates=sum(len(places) - 1 for places in simulation.oracle.log.places.values()),
        failure=failure,
        trace=simulation.scheduler.trace,
    )


def _bounds(seed: int, names: Sequence[str]) -> InlineBounds:
    """The bounds of small appends. Without `expiring`, none has a TTL: runs of minutes would not see it."""
    if "expiring" in names:
        return InlineBounds.of_both(inline_bytes_max(seed))
    return InlineBounds(swept_bytes=inline_bytes_max(seed) if "inline" in names else 0)


def _failure_of(simulation: Simulation) -> str | None:
    try:
        simulation.scheduler.run()
        simulation.faults.is_calm = True
        judge(simulation)
    except ViolationError as violation:
        return str(violation)
    except Exception:  # a defect of the code under test as much as of a check: the run has failed, and says how
        return traceback.format_exc()
    return None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Leave garbage until the run has ended: the trace lives as long, and a walk over it takes a quarter of the CPU."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_regressions() -> Sequence[tuple[int, str]]:
    """(seed, workloads), in the order of the file."""
    lines = [line.split("#")[0].split() for line in _FILE.read_text().splitlines()]
    return [(int(line[0]), line[1]) for line in lines if line]
