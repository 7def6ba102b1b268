"""Draws the latencies of `bench/results/scale.json` by case: p50 and p99, of an append and until a consumer has it."""

from pathlib import Path

import click
from matplotlib.figure import Figure

from bench.report.result import Row, load_results

_TABLES = ("By rate", "By producers, 10 MB/s", "A new account")
_COLUMNS = {"append_p50_p99_ms": "acknowledged", "consume_p50_p99_ms": "consumed"}
_COLOURS = {"append_p50_p99_ms": "tab:blue", "consume_p50_p99_ms": "tab:orange"}


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    tables = load_results()["scale"].tables
    rows = [row for title in _TABLES for row in tables[title]]
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.add_subplot()
    for column, label in _COLUMNS.items():
        spans = [span_of(row, column) for row in rows]
        low, high = [each for each, _ in spans], [each for _, each in spans]
        axes.hlines(range(len(rows)), low, high, lw=5, alpha=0.6, label=label, color=_COLOURS[column])
        axes.plot(low, range(len(rows)), "k|")
    axes.set_yticks(range(len(rows)), [str(row["case"]) for row in rows])
    axes.set(xscale="log", xlabel="ms, from p50 to p99", title="Simulated: Penstock has not run on AWS")
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(file)
    click.echo(f"{file} is written")


def span_of(row: Row, column: str) -> tuple[float, float]:
    """p50 and p99 of a cell such as `37, 1,052`; nothing to draw where the latency grows for ever."""
    median, _, most = str(row[column]).partition(", ")
    if not most:
        return float("nan"), float("nan")
    return float(median.replace(",", "")), float(most.replace(",", ""))


if __name__ == "__main__":
    main()
