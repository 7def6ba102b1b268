"""A row of `penstock prove`, and its answer.

A row declares what it expects, and what it costs and takes at most. Its function answers with a `Proof`. A function
that has to wait is a generator: it yields the milliseconds to wait, and other rows run meanwhile.
"""

import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from penstock.prove.proven_stage import ProvenStage

Steps = Generator[int, None, "Proof"]


class Emulator(Enum):
    """The use of an emulator for a row: it proves the row, it runs it and proves nothing, or it cannot run it."""

    PROVES = "proves"
    RUNS = "runs"
    LACKS = "lacks"


class Ruling(Enum):
    """`ONLY_ON_AWS`: an emulator is no proof of it, though what ran here agrees, if anything could run."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    ONLY_ON_AWS = "only on AWS"
    LEFT_OUT = "left out"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The answer of one row: the fact in words, and the measured figures by name, with their units last."""

    ruling: Ruling
    fact: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """One row.

    `usd_max` and `seconds_max` bound what it costs and takes. `action` names the IAM actions that it needs beyond those
    of `PenstockAdmin`; with one, it calls AWS itself. A row that `disturbs` changes the stage or loads it, and puts
    back what it changed.
    """

    name: str
    expects: str
    ask: Callable[[ProvenStage], "Proof | Steps"]
    usd_max: float = 0.001
    seconds_max: int = 10
    action: str = ""
    emulator: Emulator = Emulator.PROVES
    disturbs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenRow:
    """A row with its answer, the calls that it made by name and number, and what it cost and took."""

    row: ProofRow
    proof: Proof
    calls: Mapping[str, int] = field(default_factory=dict)
    usd_max: float = 0.0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "name": self.row.name,
            "expects": self.row.expects,
            "verdict": self.proof.ruling.value,
            "fact": self.proof.fact,
            "figures": dict(self.proof.figures),
            "calls": dict(self.calls),
            "usd_max": round(self.usd_max, 6),
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The percentiles of so many times, in milliseconds. The 99th of fewer than a hundred is the longest."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> "Latencies":
        """The percentiles of these times; of at least one."""
        ordered = sorted(times_ms)
        return cls(
            count=len(ordered),
            p50_ms=round(statistics.median(ordered), 1),
            p99_ms=round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
        )

    def figures(self, prefix: str = "") -> dict[str, float | int]:
        """Them by name."""
        return {f"{prefix}{name}": value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:g} ms, p99 {self.p99_ms:g} ms of {self.count}"


def ruled(is_so: bool, fact: str, **figures: float | int | str) -> Proof:
    """`HOLDS` if it is so, else `DOES_NOT_HOLD`."""
    return Proof(ruling=Ruling.HOLDS if is_so else Ruling.DOES_NOT_HOLD, fact=fact, figures=figures)


def left_out(why: str) -> Proof:
    """The answer of a row that does not apply, or that may not run."""
    return Proof(ruling=Ruling.LEFT_OUT, fact=why)


def unknown(why: str) -> Proof:
    """The answer of a row that the caller has no right to ask."""
    return Proof(ruling=Ruling.UNKNOWN, fact=why)
