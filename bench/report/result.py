"""The result of one bench run, and the JSON file in `bench/results/` that keeps it.

One bench has one file, and a new run replaces it. A column carries its unit at the end of its name (`p50_ms`,
`records_per_s`), so a row can be read without the code that made it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

Value = str | int | float | None
Row = dict[str, Value]

RESULTS_FOLDER = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a run. `load` is the mean number of running tasks in the minute before it.

    A field is None where the run was not recorded by this package, and its report does not state the value.
    """

    cores: int
    memory_gib: float | None = None
    python: str | None = None
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of one run. `commit` names the measured code, with `-dirty` after it if files had changed.

    `is_transcribed` marks figures that a person copied from an older page: `commit` then names the commit that put them
    on that page, and `conditions` holds what the page said of the run. `command` repeats the run; it is None for a
    measurement that has no bench.
    """

    name: str
    measured_at: str
    commit: str
    machine: Machine
    command: str | None
    tables: Mapping[str, Sequence[Row]]
    parameters: Mapping[str, object] = field(default_factory=dict)
    conditions: Sequence[str] = ()
    is_transcribed: bool = False

    def to_json(self) -> str:
        """Indented, one row per line, so that a diff shows which figures changed."""
        fields = asdict(self)
        tables = fields.pop("tables")
        fields["transcribed"] = fields.pop("is_transcribed")
        head = json.dumps(fields, indent=2, ensure_ascii=False).removesuffix("\n}")
        titles = [
            f"    {json.dumps(title, ensure_ascii=False)}: [\n"
            + ",\n".join(f"      {json.dumps(row, ensure_ascii=False)}" for row in rows)
            + "\n    ]"
            for title, rows in tables.items()
        ]
        return f'{head},\n  "tables": {{\n' + ",\n".join(titles) + "\n  }\n}\n"

    def save(self, folder: Path = RESULTS_FOLDER) -> Path:
        """Replaces the file of the last run."""
        path = folder / f"{self.name}.json"
        path.write_text(self.to_json())
        return path

    def find(self, table: str, where: Mapping[str, Value], column: str) -> Value:
        """The column of the first row whose other columns equal `where`. Raises LookupError if there is none."""
        for row in self.tables.get(table, ()):
            if all(row.get(name) == value for name, value in where.items()) and column in row:
                return row[column]
        raise LookupError(f"{self.name}.json has no row {dict(where)} with {column!r} in table {table!r}")


def parse_result(text: str) -> Result:
    """The inverse of `to_json`. Raises TypeError or KeyError for a missing or unknown field."""
    fields = json.loads(text)
    machine = Machine(**fields.pop("machine"))
    return Result(**fields | {"machine": machine, "is_transcribed": fields.pop("transcribed")})


def load_results(folder: Path = RESULTS_FOLDER) -> dict[str, Result]:
    """All results by name."""
    results = (parse_result(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {result.name: result for result in results}
