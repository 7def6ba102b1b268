"""`penstock jobs`: run the Spark jobs here, on EMR Serverless or on Glue, and look at their runs."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from penstock.cli.local import find_checkout
from penstock.cli.service import CommandError, show_table, time_text
from penstock.jobs.local import LocalPlace
from penstock.jobs.model import JobPlace, JobRun, RunState
from penstock_core.errors import ErrorCode, PenstockError

DEFAULT_STACK = "Penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """The places that a command may ask for, opened when it does."""

    stack: str
    region: str | None
    as_json: bool
    cores: int | None = None
    memory: str = "2g"

    def open(self, where: str) -> JobPlace:
        if where == "local":
            return LocalPlace(find_checkout(), cores=self.cores, memory=self.memory)
        from penstock.jobs.deployed import client, read_deployed
        from penstock.jobs.emr import EmrPlace
        from penstock.jobs.glue import GluePlace

        deployed = read_deployed(client("cloudformation", self.region), self.stack)
        logs = client("logs", self.region)
        if where == "emr":
            return EmrPlace(deployed, client("emr-serverless", self.region), logs)
        return GluePlace(deployed, client("glue", self.region), logs)

    def find_run(self, named: str) -> tuple[JobPlace, str]:
        """A run's id tells where it runs; the name of a job stands for its latest run here."""
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
                f"{named!r} is no run's id, nor a job that was run here: `penstock jobs status` lists the runs here, "
                "with --emr or --glue those there",
            )
        return self.open("emr"), named


def _jobs_command(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --stack, --region and --json to a command, whose first argument is then the places."""

    def with_places(stack: str | None, region: str | None, as_json: bool, **options: Any) -> None:
        own = {name: options.pop(name) for name in ("cores", "memory") if name in options}
        name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
        try:
            command(_Places(stack=name, region=region, as_json=as_json, **own), **options)
        except PenstockError as error:
            raise CommandError(error, as_json=as_json) from error
        except (BotoCoreError, ClientError) as error:
            refused = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"AWS refused: {error}")
            raise CommandError(refused, as_json=as_json) from error

    update_wrapper(with_places, command)
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(with_places)
    click.option("--region", metavar="REGION", help="AWS region of the stack.")(with_places)
    click.option("--stack", metavar="STACK", help="The deployed stack; else PENSTOCK_STACK, else Penstock.")(
        with_places
    )
    return with_places


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    for where, what in (("glue", "On Glue."), ("emr", "On EMR Serverless."), ("local", "On this machine.")):
        command = click.option(f"--{where}", "where", flag_value=where, help=what)(command)
    return command


@click.group()
def jobs() -> None:
    """Run the Spark jobs here, on EMR Serverless or on Glue."""


@jobs.command(context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_place_options
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is 1 unless it succeeds.")
@click.option("--cores", type=click.IntRange(1), help="With --local: how many.  [default: all]")
@click.option("--memory", default="2g", show_default=True, help="With --local: of Spark's process.")
@_jobs_command
def run(places: _Places, job: str, arguments: tuple[str, ...], where: str | None, wait: bool) -> None:
    """Start JOB with its own ARGUMENTS, which stand behind it; `-- --help` shows which those are."""
    if "--help" in arguments:
        click.echo(LocalPlace(find_checkout()).usage(job))
        return
    if where is None:
        raise click.UsageError("say where it shall run: --local, --emr or --glue")
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
def list_jobs(places: _Places, where: str | None) -> None:
    """Show the jobs that there are (here, unless told otherwise), each with its latest run."""
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
@click.argument("run_id", required=False)
@_place_options
@_jobs_command
def status(places: _Places, run_id: str | None, where: str | None) -> None:
    """Show the run RUN_ID, wherever it runs, or all runs that are remembered. The exit code is 1 if RUN_ID failed.

    The name of a job stands for its latest run here.
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
    else:
        show_table("runs", ("job", "run", "state", "started", "ended", "detail"), [_row(each) for each in found])
    if run_id is not None and found[0].state in (RunState.FAILED, RunState.CANCELLED):
        sys.exit(1)


@jobs.command()
@click.argument("run_id")
@_jobs_command
def logs(places: _Places, run_id: str) -> None:
    """Print what the run RUN_ID has printed so far. The name of a job stands for its latest run here."""
    place, known_id = places.find_run(run_id)
    lines: Iterable[str] = place.logs(known_id)
    if places.as_json:
        click.echo(json.dumps(list(lines)))
        return
    for line in lines:
        click.echo(line)


def _show_ended(ended: JobRun) -> None:
    result = _facts(ended.detail)
    if result:
        show_table(f"{ended.job} {ended.state.value}: {ended.run_id}", ("what", "found"), result)
    else:
        click.echo(f"{ended.job} {ended.state.value}: {ended.run_id}{f' ({ended.detail})' if ended.detail else ''}")


def _facts(detail: str) -> list[tuple[str, str]]:
    """What a line of JSON tells that a job has printed, by name; nothing if it is no such line."""
    try:
        line = json.loads(detail)
    except json.JSONDecodeError:
        return []
    if not isinstance(line, dict) or "event" not in line:
        return []
    shown = {name: value for name, value in line.items() if name not in ("event", "job")}
    return [(name.replace("_", " "), _fact(value)) for name, value in shown.items()]


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else value if isinstance(value, str) else json.dumps(value)


def _wait(place: JobPlace, current: JobRun) -> JobRun:
    """Shows on stderr how far the run is. It goes on if this is interrupted."""
    console = Console(stderr=True, highlight=False)
    try:
        with console.status("") as shown:
            while not current.state.is_over:
                shown.update(f"{current.job} {current.state.value} {current.detail}"[: console.width - 4])
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
    facts = ", ".join(f"{name} {value}" for name, value in _facts(each.detail))
    return (each.job, *_cells(each), facts or each.detail)
