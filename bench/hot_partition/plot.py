"""Draws what one partition takes by the number of producers: appends a second, refusals, records of an append."""

from typing import Any

from matplotlib.figure import Figure

from bench.report.result import Result, Row

_PANELS = {
    "appends_per_s": "appends/s",
    "refused_percent": "requests refused, percent",
    "records_per_append": "records of an append",
}


def draw(result: Result) -> Any:
    """A panel for each figure, a line for each linger: dashed without the rest, drawn through with it."""
    rows = result.tables["simulated"]
    figure = Figure(figsize=(11, 4), layout="constrained")
    lingers = list(dict.fromkeys(row["linger_ms"] for row in rows))
    for axes, (column, name) in zip(figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True):
        for number, linger_ms in enumerate(lingers):
            for rests, style in (("no", "--"), ("yes", "-")):
                line = [row for row in rows if (row["linger_ms"], row["rests"]) == (linger_ms, rests)]
                label = f"linger_ms={linger_ms}" + (", before" if rests == "no" else "")
                axes.plot(_numbers(line, "producers"), _numbers(line, column), style, color=f"C{number}", label=label)
        axes.set(xscale="log", xlabel="producers", title=name)
    figure.axes[0].legend(fontsize=7)
    return figure


def _numbers(rows: list[Row], column: str) -> list[float]:
    return [float(row[column] or 0) for row in rows]
