"""The report of a run: as JSON, as Markdown, and as the table that people see."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.prove.proof import ProvenRow, Ruling
from penstock_core.text import escaped
from penstock_core.version import VERSION

JSON_NAME, MARKDOWN_NAME = "prove.json", "prove.md"
UNPROVEN = 3  # the exit code where nothing is wrong, and not all is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveReport:
    """`failures` is what could not be put back. `seconds` and `usd_max` are those of the whole run.

    `stage` is the stage's name, "" where it is not known, and `is_own` says that the run deployed it. Times are
    milliseconds since 1970.
    """

    stage: str
    region: str
    is_local: bool
    is_own: bool
    began_at_ms: int
    ended_at_ms: int
    usd_max: float
    rows: Sequence[ProvenRow]
    failures: Sequence[str] = ()
    is_interrupted: bool = False

    @property
    def is_proven(self) -> bool:
        """True if something holds, all that was asked has an answer, none does not hold, and all was put back."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 if it is proven, 1 for what does not hold and for an unfinished run, 3 if AWS did not answer enough."""
        found = {each.proof.ruling for each in self.rows}
        if self.failures or self.is_interrupted or Ruling.DOES_NOT_HOLD in found:
            return 1
        return UNPROVEN if Ruling.UNKNOWN in found or Ruling.HOLDS not in found else 0

    @property
    def summary(self) -> str:
        """The counts, the price and the time in one line."""
        counts = Counter(each.proof.ruling for each in self.rows)
        told = ", ".join(f"{counts[ruling]} {ruling.value}" for ruling in Ruling if counts[ruling])
        seconds = (self.ended_at_ms - self.began_at_ms) / 1_000
        return f"{len(self.rows)} rows: {told}; {seconds:.0f} s, ${self.usd_max:.4f} at most"

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {
            "version": VERSION,
            "stage": self.stage,
            "region": self.region,
            "is_local": self.is_local,
            "is_own": self.is_own,
            "is_proven": self.is_proven,
            "began_at_ms": self.began_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "usd_max": round(self.usd_max, 6),
            "rows": [each.to_json() for each in self.rows],
            "is_interrupted": self.is_interrupted,
            "not_put_back": list(self.failures),
        }

    def markdown(self) -> Iterator[str]:
        """The lines of a page to paste into an issue."""
        yield f"# penstock prove, Penstock {VERSION}"
        yield ""
        yield self.summary
        yield ""
        yield "| row | verdict | expected | measured | calls |"
        yield "| --- | --- | --- | --- | --- |"
        for each in self.rows:
            cells = (each.row.name, each.proof.ruling.value, each.row.expects, each.proof.fact, _calls(each.calls))
            yield "| " + " | ".join(map(_cell, cells)) + " |"
        for failure in self.failures:
            yield f"- not put back: {_cell(failure)}"


def _calls(calls: Mapping[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in calls.items())


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|").replace("\n", " ")
