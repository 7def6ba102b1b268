"""`penstock jobs`: run the Spark jobs here, on EMR Serverless or on Glue, and look at their runs."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypeGuard

import click
from rich.console import Console
from rich.text import Text

from penstock.cli.completion import complete_jobs
from penstock.cli.local import find_checkout
from penstock.cli.service import CommandError, time_text
from penstock.cli.tables import show_table
from penstock.jobs.local import LocalPlace
from penstock.jobs.model import JobPlace, JobRun, RunState
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import escaped

DEFAULT_STACK = "Penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaces:
    """The places that a command may ask for, opened when it does."""

    stack: str
    region: str | None
    as_json: bool
    cores: int | None = None
    memory: str = "2g"

    def open(self, where: str) -> JobPlace:
        """The place of this name: local, emr or glue."""
        if where == "local":
            return LocalPlace(find_checkout(), cores=self.cores, memory=self.memory)
        from penstock.jobs.deployed import client, read_deployed_jobs
        from penstock.jobs.emr import EmrPlace, GluePlace

        deployed = read_deployed_jobs(client("cloudformation", self.region), self.stack)
        logs = client("logs", self.region)
        if where == "emr":
            return EmrPlace(deployed, client("emr-serverless", self.region), logs)
        return GluePlace(deployed, client("glue", self.region), logs)

    def find_run(self, named: str) -> tuple[JobPlace, str]:
        """The place and the id of a run. The id tells the place; the name of a job means its latest run here."""
        if named.startswith("jr_"):
            return self.open("glue"), named
        if named.startswith("local-"):
            return self.open("local"), named
        if not named.startswith("00"):
            local = self.open("local")
            if latest := next((each for each in local.runs() if each.job == named), None):
                return local, latest.run_id
            raise PenstockError(
                ErrorCode.INVALID_NAME,
                f"{named!r} is neither a run's id nor a job that ran here: `penstock jobs status` lists the runs here, "
                "with --emr or --glue the runs there",
            )
        return self.open("emr"), named


def _jobs_command(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --stack, --region and --json to a command. Its first argument is then the places."""

    def with_places(stack: str | None, region: str | None, as_json: bool, **options: Any) -> None:
        own = {name: options.pop(name) for name in ("cores", "memory") if name in options}
        name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
        try:
            command(JobPlaces(stack=name, region=region, as_json=as_json, **own), **options)
        except PenstockError as error:
            raise CommandError(error, as_json=as_json) from error
        except Exception as error:
            from botocore.exceptions import BotoCoreError, ClientError  # 0.1 s, which other commands need not wait for

            if not isinstance(error, BotoCoreError | ClientError):
                raise
            refused = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"AWS refused: {error}")
            raise CommandError(refused, as_json=as_json) from error

    update_wrapper(with_places, command)
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(with_places)
    click.option("--region", metavar="REGION", help="The AWS region of the stack.")(with_places)
    click.option("--stack", metavar="STACK", help="The deployed stack; by default PENSTOCK_STACK, else Penstock.")(
        with_places
    )
    return with_places


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    for where, what in (("glue", "Use Glue."), ("emr", "Use EMR Serverless."), ("local", "Use this machine.")):
        command = click.option(f"--{where}", "where", flag_value=where, help=what)(command)
    return command


@click.group()
def jobs() -> None:
    """Run the Spark jobs here, on EMR Serverless or on Glue."""


@jobs.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", shell_complete=complete_jobs)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_place_options
@click.option("--wait", is_flag=True, help="Wait until it ends. The exit code is 1 unless it succeeds.")
@click.option("--cores", type=click.IntRange(1), help="With --local: the number of cores.  [default: all]")
@click.option("--memory", default="2g", show_default=True, help="With --local: the memory of Spark's process.")
@_jobs_command
def run(places: JobPlaces, job: str, arguments: tuple[str, ...], where: str | None, wait: bool) -> None:
    """Start JOB with its own ARGUMENTS, which follow it. `-- --help` shows its arguments.

    For example: penstock jobs run compact --wait
    """
    if "--help" in arguments:
        click.echo(LocalPlace(find_checkout()).usage(job))
        return
    if where is None:
        raise click.UsageError("give the place to run it: --local, --emr or --glue")
    place = places.open(where)
    started = place.start(job, arguments)
    ended = _wait(place, started) if wait else started
    if places.as_json:
        click.echo(json.dumps(ended.to_json()))
    else:
        _show_ended(ended)
    if wait and ended.state is not RunState.SUCCEEDED:
        click.echo(f"its log: penstock jobs logs {ended.run_id}", err=True)
        sys.exit(1)


@jobs.command("list")
@_place_options
@_jobs_command
def list_jobs(places: JobPlaces, where: str | None) -> None:
    """Show all jobs, each with its latest run: here, or with --emr or --glue there.

    For example: penstock jobs list
    """
    place = places.open(where or "local")
    latest: dict[str, JobRun] = {}
    for each in place.runs():
        latest.setdefault(each.job, each)
    found = [(name, latest.get(name)) for name in place.jobs()]
    if places.as_json:
        click.echo(json.dumps([{"job": name, "latest": each and each.to_json()} for name, each in found]))
        return
    rows = [(name, *(_cells(each) if each else (None,) * 4)) for name, each in found]
    show_table(f"jobs ({where or 'local'})", ("job", "latest run", "state", "started", "ended"), rows)


@jobs.command()
@click.argument("run_id", required=False, shell_complete=complete_jobs)
@_place_options
@_jobs_command
def status(places: JobPlaces, run_id: str | None, where: str | None) -> None:
    """Show the run RUN_ID, wherever it runs, or all runs that are remembered.

    The exit code is 1 if RUN_ID failed. The name of a job means its latest run here.

    For example: penstock jobs status
    """
    if run_id is None:
        found = list(places.open(where or "local").runs())
        document: Any = [each.to_json() for each in found]
    else:
        place, known_id = places.find_run(run_id)
        found = [place.find(known_id)]
        document = found[0].to_json()
    if places.as_json:
        click.echo(json.dumps(document))
    elif run_id is not None and found[0].state.is_over and _facts(found[0].detail):
        _show_ended(found[0])
    else:
        show_table("runs", ("job", "run", "state", "started", "ended", "detail"), [_row(each) for each in found])
    if run_id is not None and found[0].state in (RunState.FAILED, RunState.CANCELLED):
        sys.exit(1)


@jobs.command()
@click.argument("run_id", shell_complete=complete_jobs)
@_jobs_command
def logs(places: JobPlaces, run_id: str) -> None:
    """Print the output of the run RUN_ID so far. The name of a job means its latest run here.

    For example: penstock jobs logs RUN_ID
    """
    place, known_id = places.find_run(run_id)
    lines: Iterable[str] = place.logs(known_id)
    if places.as_json:
        click.echo(json.dumps(list(lines)))
        return
    is_shown = sys.stdout.isatty()
    for line in lines:
        click.echo(escaped(line, kept="\t") if is_shown else line)


def _show_ended(ended: JobRun) -> None:
    """The result of a run: its single facts, and a table with a row for each topic and its like."""
    result = _facts(ended.detail)
    if result:
        single = [(name, _fact(value)) for name, value in result if not _is_table(value)]
        show_table(f"{ended.job} {ended.state.value}: {ended.run_id}", ("what", "found"), single)
        for name, value in result:
            if _is_table(value):
                columns = [*dict.fromkeys(column for each in value for column in each)]
                rows = [[_fact(each[column]) if column in each else None for column in columns] for each in value]
                show_table(name, [column.replace("_", " ") for column in columns], rows)
    else:
        detail = f" ({escaped(ended.detail)})" if ended.detail else ""
        click.echo(f"{ended.job} {ended.state.value}: {ended.run_id}{detail}")


def _facts(detail: str) -> list[tuple[str, Any]]:
    """The fields of a line of JSON that a job has printed, by name; empty for every other line."""
    try:
        line = json.loads(detail)
    except json.JSONDecodeError:
        return []
    if not isinstance(line, dict) or "event" not in line:
        return []
    shown = {name: value for name, value in line.items() if name not in ("event", "job")}
    return [(name.replace("_", " "), value) for name, value in shown.items()]


def _is_table(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _fact(value: object) -> str:
    """The value as a cell. Of a table only the number of its rows."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_table(value):
        return f"{len(value):,}"
    if isinstance(value, list):
        return ", ".join(map(_fact, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_fact(each)}" for name, each in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int | float) else "-" if value is None else str(value)


def _wait(place: JobPlace, current: JobRun) -> JobRun:
    """Show the state of the run on stderr until it ends. An interruption does not end the run."""
    console = Console(stderr=True, highlight=False)
    try:
        with console.status("") as shown:
            while not current.state.is_over:
                text = escaped(f"{current.job} {current.state.value} {current.detail}")
                shown.update(Text(text[: console.width - 4]))
                time.sleep(place.poll_s)
                current = place.find(current.run_id)
    except KeyboardInterrupt:
        click.echo(f"{current.run_id} goes on: penstock jobs status {current.run_id}", err=True)
        raise
    return current


def _cells(each: JobRun) -> tuple[str, str, str, str | None]:
    ended = time_text(each.ended_at_ms) if each.ended_at_ms is not None else None
    return each.run_id, each.state.value, time_text(each.started_at_ms), ended


def _row(each: JobRun) -> tuple[str | None, ...]:
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in _facts(each.detail))
    return (each.job, *_cells(each), facts or each.detail)
