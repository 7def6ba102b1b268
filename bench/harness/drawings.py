"""Plots of results, as SVG files beside the pages: docs/performance/<result>.svg.

A plot names the figures that it was made from, so a check needs no drawing: it is out of date if its result has others.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from bench.report.result import Result, Row

Draw = Callable[[Result], Any]  # to a matplotlib Figure

DRAWN_BY = {"hot_partition": "bench.hot_partition.plot", "rivals": "bench.rivals.plot"}
"""The module of each drawn result. Its `draw` takes the result."""


def stale_drawings(folder: Path, results: Mapping[str, Result]) -> list[str]:
    """The drawn results whose file is missing, or made from other figures."""
    return [
        name
        for name in DRAWN_BY
        if name in results and f"figures {digest(results[name])}" not in _text(drawing_path(folder, name))
    ]


def draw_result(folder: Path, result: Result) -> Path:
    """Writes the plot. Only here is matplotlib loaded."""
    import matplotlib as mpl

    draw: Draw = import_module(DRAWN_BY[result.name]).draw
    buffer = BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
        draw(result).savefig(buffer, format="svg", metadata={"Date": None, "Description": f"figures {digest(result)}"})
    path = drawing_path(folder, result.name)
    path.write_text("\n".join(line.rstrip() for line in buffer.getvalue().decode().splitlines()) + "\n")
    return path


def drawing_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.svg"


def digest(result: Result) -> str:
    """A short name of a result's figures."""
    tables = {title: list(rows) for title, rows in result.tables.items()}
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16]


def bars(axes: Any, rows: Sequence[Row], label: str, columns: Mapping[str, str]) -> None:
    """Horizontal bars, on a logarithmic axis: a group for each row, a bar for each column of `columns`, by its name."""
    height = 0.8 / len(columns)
    for place, (column, name) in enumerate(columns.items()):
        values = [float(row[column] or 0) for row in rows]
        spots = [number + (place - (len(columns) - 1) / 2) * height for number in range(len(rows))]
        drawn = axes.barh(spots, values, height, label=name)
        axes.bar_label(drawn, labels=[f"{value:,.10g}" for value in values], padding=2, fontsize=7)
    axes.set_yticks(range(len(rows)), [str(row[label]) for row in rows])
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.invert_yaxis()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
