"""The report of a run: as JSON, as Markdown, and as the table that people see."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.prove.proof import ProvenRow, Ruling
from penstock_core.text import escaped
from penstock_core.version import VERSION

JSON_NAME, MARKDOWN_NAME = "prove.json", "prove.md"


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
        """True if all rows were asked, nothing was found that does not hold, and all was put back."""
        is_whole = not (self.failures or self.is_interrupted)
        return is_whole and all(each.proof.ruling is not Ruling.DOES_NOT_HOLD for each in self.rows)

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
