"""A mutant: a defect that is in the service while its context manager is entered. The tables hold all of them.

```
<name> | <workload> | <first seed or ?> [| <kind of anomaly> <first seed>]
    <function>: <text> => <other text>
    <more lines of the other text>
```
A name with lines below it is a defect of these functions (spoiled.py). A name alone is a mutant of an expression
(tests/mutants), or a function of patches.py. The kind is that which the history checker finds while the workloads' own
checks are off.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

from tests.history.model.anomaly import Kind
from tests.mutants.driver import installed, parse_mutant
from tests.simulation.clients import share_worker
from tests.simulation.engine.reduction import Reduction
from tests.simulation.mutants.patches import PATCHES
from tests.simulation.mutants.spoiled import Edit, spoiled
from tests.simulation.oracle import push_attempts, push_records, pushes, share_handouts, shares, sure_errors
from tests.simulation.oracle import transactions as transaction_checks
from tests.simulation.run import run
from tests.simulation.service import push_service
from tests.simulation.workloads import groups, transactions
from tests.simulation.workloads.sharing import worked_group

_EDIT = re.compile(r"^ {4}([\w.]+): (.*?) =>(?: (.*))?\n((?: {4}(?!.* =>).*\n)*)", re.MULTILINE)
_WITH_CHECKS = (
    *(groups, transactions, transaction_checks, shares, share_handouts, share_worker, worked_group, pushes),
    *(push_attempts, push_records, push_service, sure_errors),
)
SEEDS_MAX = 700  # of the first so many, at least one shows each mutant
_BOUND = Reduction(steps_max=250_000)  # a run with a defect may never end: the longest of others needs 100,000


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, the workload that must show it, and the first seed that does, None if none is known.

    A change of the service may move that seed.
    The checker finds a `kind` of anomaly in its history, at `checked_seed` first.
    """

    name: str
    workload: str
    first_seed: int | None
    edits: tuple[Edit, ...] = ()
    kind: Kind | None = None
    checked_seed: int = 0

    def patched(self) -> AbstractContextManager[Any]:
        """The service has the defect in the block."""
        if self.edits:
            return spoiled(self.edits)
        return PATCHES[self.name]() if self.name in PATCHES else installed(parse_mutant(self.name))

    def find(self, seeds: Iterable[int]) -> tuple[int, str] | None:
        """The first of the seeds whose run fails with the mutant, and how it fails."""
        with self.patched():
            failures = ((seed, run(seed, self.workload, reduction=_BOUND).failure) for seed in seeds)
            return next(((seed, failure) for seed, failure in failures if failure is not None), None)

    def find_anomaly(self, seeds: Iterable[int]) -> tuple[int, str] | None:
        """The first of the seeds where the history checker finds the anomaly, while no other check of these looks."""
        with ExitStack() as stack:
            for module in _WITH_CHECKS:
                stack.enter_context(patch.object(module, "expect", lambda *_: None))
            stack.enter_context(self.patched())
            failures = ((seed, run(seed, self.workload, reduction=_BOUND).failure or "") for seed in seeds)
            wanted = ("the history has anomalies", f"{self.kind!r}")
            return next(((seed, text) for seed, text in failures if all(each in text for each in wanted)), None)


@cache
def mutants() -> tuple[Mutant, ...]:
    """Every mutant that the simulator must find."""
    tables = sorted(Path(__file__).parent.glob("*.txt"))
    return tuple(mutant for table in tables for mutant in _parse(table.read_text(encoding="utf-8")))


def mutant_named(name: str) -> Mutant:
    """The mutant of that name."""
    return next(each for each in mutants() if each.name == name)


def _parse(table: str) -> Iterator[Mutant]:
    for head, body in re.findall(r"^([^\s#].*)\n((?: .*\n)*)", table, re.MULTILINE):
        name, workload, seed, *checked = head.split(" | ")
        kind, checked_seed = checked[0].split() if checked else (None, "0")
        edits = tuple(starmap(_edit, _EDIT.findall(body)))
        first_seed = None if seed == "?" else int(seed)
        yield Mutant(name, workload, first_seed, edits, None if kind is None else Kind[kind], int(checked_seed))


def _edit(name: str, old: str, new: str, more: str) -> Edit:
    more = re.sub("^    ", "", more, flags=re.MULTILINE)
    return Edit(name, old, f"{new}\n{more}".rstrip() if new else dedent(more).rstrip())
