"""The result of one check, and of all."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """`MEND` asks you to do something. `UNKNOWN` could not be checked, and `SKIPPED` does not apply here."""

    OK = "ok"
    MEND = "mend"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: its name, its verdict, the fact, and for MEND and UNKNOWN what to do about it."""

    check: str
    verdict: Verdict
    fact: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long `count` equal requests took, seen from here, in milliseconds."""

    request: str
    count: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run cost at most, in dollars, and the requests that it is computed from."""

    usd_max: float
    requests: int
    aws_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings in the order of the checks, the timings of the round trip, and the cost of the run."""

    findings: Sequence[Finding]
    timings: Sequence[Timing]
    cost: Cost

    @property
    def is_well(self) -> bool:
        """True if nothing is to be mended."""
        return all(finding.verdict is not Verdict.MEND for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {
            "is_well": self.is_well,
            "findings": [asdict(each) | {"verdict": each.verdict.value} for each in self.findings],
            "timings": [asdict(each) for each in self.timings],
            "cost": asdict(self.cost),
        }
