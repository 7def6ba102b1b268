"""A mutant: a defect that stands in the service while its context manager is entered."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Patch = AbstractContextManager[Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, and the workload that must show it. Of a rare one, the search begins at `first_seed`."""

    name: str
    workload: str
    patched: Callable[[], Patch]
    first_seed: int = 0
