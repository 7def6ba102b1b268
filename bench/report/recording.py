"""Shows the figures of a bench, prints them as JSON, or writes them to `bench/results/`.

`@reported("stack")` adds the options `--json` and `--write` to a click command and passes a `Report` to it. The tables
that the command shows become the result.
"""

import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from platform import python_version

import click
from rich.console import Console

from bench.report.result import RESULTS_FOLDER, Machine, Result, Row
from bench.report.tables import to_console

GIB = 1024**3
BROKEN = "**The run broke what it promises.**"
_OWN_OPTIONS = ("--json", "--write")


class Report:
    """Collects the tables and the conditions of one run.

    `console` takes a bench's other output and leaves stdout to the JSON.
    """

    def __init__(self, name: str, parameters: Mapping[str, object], *, as_json: bool) -> None:
        self.name = name
        self.console = Console(stderr=as_json)
        self._as_json = as_json
        self._parameters = {key: _plain(value) for key, value in parameters.items() if value is not None}
        self._tables: dict[str, Sequence[Row]] = {}
        self.conditions: list[str] = []
        self.holds = True
        self._machine = this_machine()

    def show(self, title: str, rows: Sequence[Row]) -> None:
        """Adds a table to the result, and prints it unless the run prints JSON."""
        self._tables[title] = rows
        if not self._as_json:
            self.console.print(to_console(title, rows))

    def judge(self, *, holds: bool) -> None:
        """Tells whether the run kept its promise. A run that broke one exits with code 1, and its result says so."""
        if self.holds and not holds:
            self.conditions.append(BROKEN)
        self.holds = self.holds and holds

    def to_result(self) -> Result:
        """The tables so far, with the time, the commit and the machine of this run."""
        return Result(
            name=self.name,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=_commit(),
            machine=self._machine,
            command=_command(),
            parameters=self._parameters,
            conditions=self.conditions,
            tables=self._tables,
        )


def reported(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a click command a bench: it gets a `Report` first, then its own options."""

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
        @click.option("--write", "is_written", is_flag=True, help=f"Write the result to bench/results/{name}.json.")
        @functools.wraps(run)
        def command(*, as_json: bool, is_written: bool, **options: object) -> None:
            report = Report(name, options, as_json=as_json)
            run(report, **options)
            _end(report, as_json=as_json, is_written=is_written)

        return command

    return decorate


def this_machine() -> Machine:
    """The machine that runs this process, with its load now."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages * page_bytes / GIB, 1),
        python=python_version(),
        load=round(os.getloadavg()[0], 1),
    )


def _plain(value: object) -> object:
    """The option as JSON can hold it."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float) else str(value)


def _end(report: Report, *, as_json: bool, is_written: bool) -> None:
    result = report.to_result()
    if as_json:
        click.echo(result.to_json(), nl=False)
    if is_written:
        path = result.save(RESULTS_FOLDER)
        report.console.print(f"{path.relative_to(RESULTS_FOLDER.parents[1])} is written: run python -m bench.pages")
    if not report.holds:
        raise SystemExit(1)


def _commit() -> str:
    """The short hash of the checkout's commit, with `-dirty` if tracked files that a bench can run differ from it."""
    head = _git("rev-parse", "--short=7", "HEAD")
    not_run = (f":(top,exclude){path}" for path in ("bench/report", "bench/results", "docs", "tests/bench"))
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *not_run)
    return f"{head or 'unknown'}{'-dirty' if changed else ''}"


def _git(*arguments: str) -> str:
    """The output of git, or nothing outside a checkout."""
    done = subprocess.run(["git", *arguments], cwd=RESULTS_FOLDER, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _command() -> str:
    """The command line that repeats the run, without the options that only say where its result goes."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).stem
    arguments = [argument for argument in sys.argv[1:] if argument not in _OWN_OPTIONS]
    return shlex.join(["python", "-m", module, *arguments])
