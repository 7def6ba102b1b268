"""A mutant: a defect that is in the service while its context manager is entered."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from penstock_core.storage.item import ConditionalPut, ConditionalUpdate
from tests.simulation.run import run

SEEDS_MAX = 1_000  # of the first so many, at least one shows each mutant
_FILE = Path(__file__).with_name("first_seeds.txt")

Patch = AbstractContextManager[Any]
Write = TypeVar("Write", bound=ConditionalPut | ConditionalUpdate)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, and the workload that must show it."""

    name: str
    workload: str
    patched: Callable[[], Patch]

    @property
    def first_seed(self) -> int:
        """The first seed that shows it. Once the service has changed, it may be a later one."""
        return first_seeds().get(self.name, 0)

    def find(self, seeds: Iterable[int]) -> tuple[int, str] | None:
        """The first of the seeds whose run fails with the mutant, and how it fails."""
        with self.patched():
            for seed in seeds:
                failure = run(seed, self.workload).failure
                if failure is not None:
                    return seed, failure
        return None


def under(write: Write, condition: str) -> Write:
    """The same write under another condition, without the names and values that nothing uses then."""
    used = {*re.findall(r"[:#]\w+", f"{getattr(write, 'update', '')} {condition}")}
    values = {name: value for name, value in write.values.items() if name in used}
    names = {name: attribute for name, attribute in write.names.items() if name in used}
    return replace(write, condition=condition, values=values, names=names)


@cache
def first_seeds() -> Mapping[str, int]:
    """The first seeds, by the name of the mutant, of those that seed 0 does not show.

    Write the file anew with `python -m tests.simulation.mutants > tests/simulation/mutants/first_seeds.txt`.
    """
    lines = [line.split(maxsplit=1) for line in _FILE.read_text().splitlines()]
    return {name: int(seed) for seed, name in lines}
