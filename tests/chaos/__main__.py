"""`python -m tests.chaos` exits with 0 if every promise held, 1 if one was broken (its notes are kept)."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.chaos.run import LIKE_AWS, ChaosReport, ChaosSettings, run_chaos
from tests.history.model.anomaly import Kind
from tests.history.push.figures import PushFigures


@click.command()
@click.option("--seconds", type=click.FloatRange(min=5), default=120.0, show_default=True, help="Of faults.")
@click.option("--seed", type=int, help="Of the plan.  [default: another each time]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Deploy another checkout than this one, such as a copy that was broken on purpose.",
)
@click.option("--like-aws", default=LIKE_AWS, help="Rules of AWS that hold meanwhile.  [default: all, scaled]")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".penstock/chaos"),
    show_default=True,
    help="Where the history and all notes go if a promise was broken.",
)
@click.option("--only", type=click.Choice(["push"]), help="Only the clients of subscriptions, for a slow machine.")
def main(
    seconds: float, seed: int | None, as_json: bool, checkout: Path | None, like_aws: str, keep: Path, only: str | None
) -> None:
    """Attack a local stack of its own, and judge what clients saw (docs/contributing/chaos.md)."""
    console = Console(stderr=as_json, highlight=False)
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    try:
        with console.status("") as status:
            settings = ChaosSettings(
                seconds=seconds, seed=seed, checkout=checkout, like_aws=like_aws, is_push_only=only is not None
            )
            report = run_chaos(folder, settings, status.update)
    except BaseException:
        console.print(f"The run of seed {seed} did not end; its notes are in {_keep(folder, keep, seed)}")
        raise
    if as_json:
        click.echo(json.dumps(to_json(report), indent=2))
    else:
        _print(report, console)
    if report.verdict.violations:
        console.print(f"[red]Seed {seed}. History and notes: {_keep(folder, keep, seed)}[/red]")
        sys.exit(1)
    shutil.rmtree(folder)


def to_json(report: ChaosReport) -> dict[str, Any]:
    """The report as JSON values; `violations` is empty if every promise held."""
    return {
        "seed": report.plan.seed,
        "seconds": report.plan.seconds,
        "figures": _figures(report),
        "violations": list(report.verdict.violations),
        "injected": report.injected,
        "requests": report.requests,
        "storage_calls": report.storage_calls,
        "jobs": report.jobs,
        "workers": report.workers,
        "deliveries": report.deliveries,
        "like_aws": report.like_aws,
        "stopped_waiting_s": list(report.stopped_waiting_s),
        "caught_up_s": report.caught_up_s,
        "outages": [asdict(outage) for outage in report.plan.outages],
        "history": report.verdict.history.to_json(),
    }


def _figures(report: ChaosReport) -> dict[str, float]:
    verdict, counts = report.verdict, report.verdict.history.counts
    produce = {name: count for name, count in report.requests.items() if name.startswith("/v1/produce ")}
    return {
        "acknowledged records": verdict.acknowledged,
        "truncated since": verdict.truncated,
        "lost": verdict.lost + report.keyed.lost,
        "anomalies": sum(verdict.history.found.values()),
        "duplicates": verdict.history.found.get(Kind.DUPLICATE, 0),
        "acknowledged records of the compacted topic": report.keyed.acknowledged,
        "of these removed for newer ones": report.keyed.removed,
        "records that failed for certain": verdict.failed,
        "records whose fate producers do not know": verdict.unknown,
        "records read": counts.records_read,
        "offset commits": counts.commits,
        "faults injected": sum(report.injected.values()),
        "produce requests": sum(produce.values()),
        "produce requests that failed": sum(count for name, count in produce.items() if not name.endswith(" 200")),
        "sends told maybe": counts.sends_maybe,
        "records handed out by share groups": counts.deliveries,
        "acceptances of share groups": counts.accepts,
        "dead letters": counts.dead_letters,
        **_pushed(report.verdict.history.subscriptions),
        "delayed records that came": report.verdict.history.lateness.records,
        "seen after their time, s, p50": round(report.verdict.history.lateness.p50_ms / 1e3, 2),
        "seen after their time, s, p99": round(report.verdict.history.lateness.p99_ms / 1e3, 2),
        "worst lag at the tail, s": round(verdict.tail_lag_ms / 1e3, 2),
        "faults, s": round(report.faults_s, 1),
        "whole run, s": round(report.whole_s, 1),
    }


def _pushed(subscriptions: Mapping[str, PushFigures]) -> dict[str, float]:
    return {
        f"subscription {name}, {what}": count
        for name, figures in subscriptions.items()
        for what, count in asdict(figures).items()
    }


def _print(report: ChaosReport, console: Console) -> None:
    for title, rows in (
        (f"chaos, seed {report.plan.seed}", _figures(report)),
        ("faults injected", dict(sorted(report.injected.items()))),
        ("workers of share groups", dict(sorted(report.workers.items()))),
        ("deliveries and targets", dict(sorted(report.deliveries.items()))),
        ("rules of AWS", dict(sorted(report.like_aws.items()))),
        ("scheduled functions and compaction", dict(sorted(report.jobs.items()))),
        ("answers to producers (0: none)", dict(sorted(report.requests.items()))),
    ):
        console.print(_table(title, rows))
    for waited_s in report.stopped_waiting_s:
        told = "did not stop within the outage" if waited_s is None else f"stopped after {waited_s:.1f} s"
        console.print(f"A zone hung: appends with acks=all {told} waiting for it.")
    if report.caught_up_s is not None:
        console.print(f"Every zone was in sync with every segment {report.caught_up_s:.1f} s after the last client.")
    for example in report.verdict.history.examples:
        topic, partition = example.anomaly.where
        console.print(escape(f"{example.anomaly.kind} {topic}/{partition}: {example.anomaly.text}"))
        for witness in example.witnesses:
            console.print(escape(f"  line {witness.line} {witness.process}: {witness.text}"))
    for violation in report.verdict.violations:
        console.print(f"[red]{escape(violation)}[/red]")
    if not report.verdict.violations:
        console.print("[green]Every promise held.[/green]")


def _table(title: str, rows: Mapping[str, float]) -> Table:
    table = Table(title, "")
    table.columns[1].justify = "right"
    for name, figure in rows.items():
        table.add_row(escape(name), f"{figure:,}")
    return table


def _keep(folder: Path, keep: Path, seed: int) -> Path:
    keep.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "stack" / "emulator-s3", ignore_errors=True)
    return Path(shutil.move(folder, keep / f"{seed}-{folder.name.rpartition('-')[2]}"))


if __name__ == "__main__":
    main()
