"""`python -m tests.history FILE` exits with 0 if the history is clean, 1 if it has anomalies, 2 if it is malformed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.history.checker import Options, check
from tests.history.checks.lag import Lag
from tests.history.format import MalformedHistoryError
from tests.history.report import Report

EXIT_CLEAN, EXIT_ANOMALIES, EXIT_MALFORMED = 0, 1, 2


class HistoryFile:
    """The lines of a file. You may iterate over them any number of times."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as lines:
            yield from lines


@click.command()
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--allow-retry-duplicates", is_flag=True, help="Count copies that retries explain apart.")
@click.option("--allow-unseen", is_flag=True, help="No client had to read to the end.")
@click.option("--examples", "examples_max", type=click.IntRange(min=0), default=5, help="Of each kind.")
def main(history: Path, as_json: bool, allow_retry_duplicates: bool, allow_unseen: bool, examples_max: int) -> None:
    """Find the anomalies of the operation HISTORY (JSON lines, docs/contributing/history.md)."""
    options = Options(
        allow_retry_duplicates=allow_retry_duplicates, allow_unseen=allow_unseen, examples_max=examples_max
    )
    try:
        report = check(HistoryFile(history), options)
    except MalformedHistoryError as error:
        click.echo(f"{history}: {error}", err=True)
        sys.exit(EXIT_MALFORMED)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report, Console(highlight=False, soft_wrap=not sys.stdout.isatty()))
    sys.exit(EXIT_CLEAN if report.is_clean else EXIT_ANOMALIES)


def _print(report: Report, console: Console) -> None:
    counts = report.counts
    console.print(
        f"{counts.operations:,} operations. Records sent: {counts.sends_acknowledged:,} acknowledged, "
        f"{counts.sends_maybe:,} maybe, {counts.sends_failed:,} failed. {counts.polls:,} polls read "
        f"{counts.records_read:,} records. {counts.commits:,} commits. Unseen at the end: {counts.unseen:,}."
    )
    if report.explained:
        console.print(f"{counts.retry_duplicates:,} duplicates explained by retries, the first:")
        for anomaly in report.explained:
            console.print(f"  {_where(anomaly.where)} {escape(anomaly.text)}")
    if counts.deliveries:
        console.print(f"Share groups handed out {counts.deliveries:,} records.")
    if report.lateness.records:
        late = report.lateness
        console.print(
            f"{late.records:,} delayed records came. They were seen {late.p50_ms:,.0f} ms after their time at p50, "
            f"{late.p99_ms:,.0f} ms at p99, {late.worst_ms:,.0f} ms at worst."
        )
    _print_lag(console, "Worst real-time lag", report.worst_lag)
    _print_lag(console, "Worst real-time lag of a poll that returned nothing", report.worst_empty_lag)
    if report.is_clean:
        console.print("[green]No anomalies.[/green]")
        return
    table = Table("anomaly", "found", "the first, and who saw them")
    for kind, found in report.found.items():
        shown = []
        for example in report.examples:
            if example.anomaly.kind is kind:
                shown.append(f"{_where(example.anomaly.where)} {escape(example.anomaly.text)}")
                shown += [
                    f"  line {witness.line} {escape(witness.process)}: {escape(witness.text)}"
                    for witness in example.witnesses
                ]
        table.add_row(f"[red]{kind}[/red]", f"{found:,}", "\n".join(shown))
    console.print(table)


def _print_lag(console: Console, title: str, lags: tuple[Lag, ...]) -> None:
    if lags:
        worst = lags[0]
        console.print(
            f"{title}: {worst.lag_ns / 1e6:,.1f} ms, offset {worst.offset} of {_where(worst.where)}, "
            f"poll of {escape(worst.process)} in line {worst.line}."
        )


def _where(where: tuple[str, int]) -> str:
    return escape(f"{where[0]}/{where[1]}")


if __name__ == "__main__":
    main()
