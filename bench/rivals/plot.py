"""Draws the rates of each system, by the size of a record, and its latencies."""

from typing import Any

from matplotlib.figure import Figure

from bench.harness.drawings import bars
from bench.report.result import Result

_RATES = {"sent_records_per_s": "sent", "received_records_per_s": "received"}
_DELAYS = {"acknowledged_p50_ms": "acknowledged", "delivered_p50_ms": "delivered"}


def draw(result: Result) -> Any:
    """One panel for each size with the fewest clients, and one for the latencies."""
    rates = {title: rows for title, rows in result.tables.items() if " to send, then " in title}
    sizes = dict.fromkeys(title.partition(",")[0] for title in rates)
    firsts = [next(title for title in rates if title.startswith(f"{size},")) for size in sizes]
    latencies = "one record of 100 B at a time"
    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, len(firsts) + 1)
    for axes, title in zip(panels, [*firsts, latencies], strict=True):
        bars(axes, result.tables[title], "system", _DELAYS if title == latencies else _RATES)
        axes.set(title=title, xlabel="p50 ms" if title == latencies else "records/s")
        axes.title.set_fontsize(9)
        axes.legend(fontsize=7)
    return figure
