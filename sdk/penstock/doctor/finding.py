"""The result of one check, and of all, without secrets."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from penstock.errors import AccessDeniedError

_PATTERNS = (
    (re.compile(r"arn:aws[\w-]*:[^\s\"'|,)]+"), "<arn>"),
    (re.compile(r"(?:https?|wss?)://[^\s\"'|,)]+"), "<url>"),
    (re.compile(r"\b[\w.-]+\.amazonaws\.com(?:\.cn)?\b"), "<host>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<host>"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{8,}\b"), "<key>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
)


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


def remedy_of(error: AccessDeniedError, by_iam: str) -> str:
    """The service's own words where an access rule is missing: they name the command. Otherwise `by_iam`."""
    return f"an access rule decides it: {error.message}" if "operation" in error.facts else by_iam


def redacted(text: str) -> str:
    """The text with a placeholder for each of them."""
    for pattern, placeholder in _PATTERNS:
        text = pattern.sub(placeholder, text)
    return text
