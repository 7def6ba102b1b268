"""Tables of rows, for the terminal and for Markdown.

A column's heading comes from its name: `records_per_s` reads "records/s", `p50_ms` reads "p50 ms". A table with more
than `COLUMNS_MAX` columns is turned: each row becomes a column, headed by the row's first value.
"""

from collections.abc import Sequence

from rich.table import Table

from bench.report.result import Row, Value

COLUMNS_MAX = 12
_WORDS = {
    "cpu": "CPU",
    "gb": "GB",
    "gib": "GiB",
    "kb": "KB",
    "mb": "MB",
    "mib": "MiB",
    "us": "µs",
    "usd": "$",
}


def to_console(title: str, rows: Sequence[Row]) -> Table:
    """A table for the terminal."""
    header, *lines = _grid(rows)
    table = Table(*header, title=title)
    for line in lines:
        table.add_row(*line)
    return table


def to_markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown, without a line break at its end."""
    header, *lines = _grid(rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *lines))


def heading(name: str) -> str:
    """The words of a column's name, with `/` for `per`."""
    words = " ".join(_WORDS.get(word, word) for word in name.split("_"))
    return words.replace(" per ", "/")


def cell(value: Value) -> str:
    """A number with commas between thousands, other values as they are, an empty cell for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,}"


def _grid(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of all lines, the header first."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[cell(row.get(name)) for name in columns] for row in rows]
    grid = [[heading(name) for name in columns], *lines]
    return [list(line) for line in zip(*grid, strict=True)] if len(columns) > COLUMNS_MAX else grid
