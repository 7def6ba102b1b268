"""A picture of the month's dollars by rate, for all systems."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.cost.counted import PROFILES
from penstock.cost.estimate import Estimate, estimate
from penstock.cost.others import estimates
from penstock.cost.workload import Workload
from penstock_core.errors import ErrorCode, PenstockError

_STEPS = tuple(10 ** (step / 4) for step in range(-8, 9))
"""The rates of the plot, as multiples of the workload's: from a hundredth to a hundred times."""


def curves(workload: Workload) -> dict[str, list[tuple[float, float]]]:
    """By system, the rate in records a second and the dollars of a month."""
    found: dict[str, list[tuple[float, float]]] = {}
    for step in _STEPS:
        there = replace(workload, records_per_s=workload.records_per_s * step)
        months: Sequence[Estimate | str] = [*(estimate(each, there) for each in PROFILES), *estimates(there)]
        for month in months:
            if isinstance(month, Estimate):
                found.setdefault(month.system, []).append((there.records_per_s, month.usd))
    return found


def write_plot(path: Path, workload: Workload) -> None:
    """Writes the picture, in the format of the path's suffix. Raises INVALID_CONFIG if it cannot be drawn."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{error}: --plot needs `pip install 'penstock[plot]'`"
        ) from error
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    for system, points in curves(workload).items():
        style = "-" if system.startswith("Penstock") else "--"
        axes.plot(*zip(*points, strict=True), style, label=system)
    axes.axvline(workload.records_per_s, color="grey", linewidth=0.8)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"records of {workload.record_bytes:,} bytes a second",
        ylabel="dollars a month",
        title=f"{workload.readers} readers, {workload.retention_days:g} days",
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{path} cannot be written: {error}") from error
