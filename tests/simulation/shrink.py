"""Shrink a run that failed: run it with less and less, while it fails in the same way.

A shorter trace is easier to read. The steps are greedy, and the cheapest come first:

1. leave out workloads, with the same seed or with others: a workload's absence changes all that is drawn behind it;
2. leave out kinds of fault, then all faults after the first few;
3. let clients end sooner;
4. leave out clients, first half of them, then one by one.

A reduction counts if the run still fails, with a message of the same kind, in no more steps.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulation.engine.reduction import Reduction
from tests.simulation.run import Result, run

RUNS_MAX = 100  # that shrinking takes at most
_HALVINGS = 6  # of a number that is searched
_SEEDS = 20  # tried besides the seed that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkRun:
    """A run that fails as the first one did. `runs` were needed to find it."""

    result: Result
    runs: int


def shrink(failed: Result, *, runs_max: int = RUNS_MAX) -> ShrunkRun:
    """The shortest run that was found to fail as `failed` did; `failed` itself if there is none."""
    return _Shrinking(failed, runs_max).shrunk()


def kind_of(failure: str) -> str:
    """The message without what differs from run to run: names with digits, lists and quoted text.

    Of a traceback it is the last line.
    """
    line = failure.rstrip().splitlines()[-1] if failure.startswith("Traceback") else failure
    line = re.sub(r"[\[({].*[\])}]|'[^']*'|\"[^\"]*\"", "", line)
    return " ".join(word for word in line.split() if not re.search(r"\d", word))


class _Shrinking:
    """The shortest run so far, and how many more may be tried."""

    def __init__(self, failed: Result, runs_max: int) -> None:
        self._failed = failed
        self._kind = kind_of(failed.failure or "")
        self._best = failed
        self._runs = 0
        self._runs_max = runs_max

    def shrunk(self) -> ShrunkRun:
        self._without_workloads()
        self._without_kinds_of_fault()
        self._smallest(0, sum(self._best.faults.values()), lambda reduction, most: replace(reduction, faults_max=most))
        self._smallest(0, self._best.ended_ms, lambda reduction, end: replace(reduction, ends_ms=end))
        self._without_clients()
        return ShrunkRun(result=self._best, runs=self._runs)

    def _without_workloads(self) -> None:
        for name in self._best.workloads:
            left = tuple(each for each in self._best.workloads if each != name)
            if left:
                self._try(left, self._best.reduction)
        for number in range(_SEEDS):
            self._try(self._best.workloads[number % len(self._best.workloads) :][:1], Reduction(), seed=number)

    def _without_kinds_of_fault(self) -> None:
        for name in sorted(self._best.struck):
            reduction = self._best.reduction
            self._try(self._best.workloads, replace(reduction, no_faults=reduction.no_faults | {name}))

    def _smallest(self, low: float, high: float, reduced: Callable[[Reduction, float], Reduction]) -> None:
        """Halve the distance to the smallest number with which the run still fails."""
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            if middle >= high:
                return
            if self._try(self._best.workloads, reduced(self._best.reduction, middle)):
                high = middle
            else:
                low = middle + 1

    def _without_clients(self) -> None:
        left = sorted({*range(self._best.clients)} - self._best.reduction.no_clients)
        half = len(left) // 2
        for some in ([*left[:half]], [*left[half:]], *([each] for each in left)):
            reduction = self._best.reduction
            if some and not set(some) <= reduction.no_clients:
                self._try(self._best.workloads, replace(reduction, no_clients=reduction.no_clients | {*some}))

    def _try(self, workloads: tuple[str, ...], reduction: Reduction, seed: int | None = None) -> bool:
        """True if the run with this fails in the same way, in no more steps. It is the shortest one then."""
        if self._runs >= self._runs_max:
            return False
        self._runs += 1
        reduction = replace(reduction, steps_max=self._best.steps + 1)
        seed = self._best.seed if seed is None else seed
        result = run(seed, ",".join(workloads), self._failed.profile, reduction)
        fails = result.failure is not None and kind_of(result.failure) == self._kind
        if fails and result.steps <= self._best.steps:
            self._best = result
            return True
        return False
