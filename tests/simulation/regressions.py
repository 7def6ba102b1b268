"""The seeds that once failed."""

from collections.abc import Sequence
from pathlib import Path

_FILE = Path(__file__).with_name("regressions.txt")


def read_regressions() -> Sequence[tuple[int, str]]:
    """(seed, workloads), in the order of the file."""
    lines = [line.split("#")[0].split() for line in _FILE.read_text().splitlines()]
    return [(int(line[0]), line[1]) for line in lines if line]
