"""`python -m tests.simulation`: run seeds, replay one. Exits with 1 if one fails, and says how to replay it."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from tests.simulation.engine.reduction import Reduction, parse_reduction
from tests.simulation.engine.scheduler import as_text, format_entry
from tests.simulation.run import Result, read_regressions, run
from tests.simulation.service.simulation import PROFILES
from tests.simulation.shrink import shrink
from tests.simulation.workloads import MIXED, WORKLOADS

_TAIL_LINES = 40
_FAILURES_SHOWN = 5


@dataclass(slots=True)
class _Summary:
    """Results of many runs, added up."""

    seeds: int = 0
    steps: int = 0
    acknowledged: int = 0
    maybe: int = 0
    failed: int = 0
    lost: int = 0
    duplicates: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.acknowledged += result.acknowledged
        self.maybe += result.maybe
        self.failed += result.failed
        self.lost += result.lost
        self.duplicates += result.duplicates
        self.faults += result.faults
        if result.failure is not None:
            self.failures.append(result)

    def to_json(self) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "acknowledged": self.acknowledged,
            "maybe": self.maybe,
            "failed": self.failed,
            "lost": self.lost,
            "duplicates": self.duplicates,
            "faults": dict(self.faults.most_common()),
            "failures": [
                {"seed": each.seed, "workloads": each.workloads, "failure": each.failure} for each in self.failures
            ],
        }


@click.command()
@click.option("--seed", type=int, help="Replay one seed.")
@click.option("--seeds", help="Run many: A..B, B not included.")
@click.option("--workload", default=MIXED, help=f"Joined by commas: {', '.join(WORKLOADS)}; or {MIXED}.")
@click.option("--profile", type=click.Choice(list(PROFILES)), default="express3", help="The zones of the service.")
@click.option("--trace", is_flag=True, help="Print the whole trace of --seed.")
@click.option("--reduction", "reduced", default="", help="What to leave out of --seed, as a shrunk run printed it.")
@click.option("--shrink/--no-shrink", "must_shrink", default=True, help="Shrink the first seed that fails.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Processes.")
def main(
    *,
    seed: int | None,
    seeds: str | None,
    workload: str,
    profile: str,
    trace: bool,
    reduced: str,
    must_shrink: bool,
    as_json: bool,
    jobs: int,
) -> None:
    """Run the simulator (docs/contributing/simulation.md). Seeds that once failed run first, unless you ask for one."""
    if (seed is None) == (seeds is None):
        raise click.UsageError("give --seed N or --seeds A..B")
    if workload != MIXED and not set(workload.split(",")) <= set(WORKLOADS):
        raise click.UsageError(f"--workload {workload}: use {', '.join(WORKLOADS)}, joined by commas, or {MIXED}")
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    if seed is not None:
        result = run(seed, workload, profile, _parse_reduction(reduced))
        if trace:
            for entry in result.trace:
                click.echo(format_entry(entry))
        results: Iterable[Result] = [result]
    else:
        wanted = [(each, workload, profile) for each in _parse_range(str(seeds))]
        runs = [*((*each, profile) for each in read_regressions()), *wanted]
        results = _progress(console, _run_all(runs, jobs), len(runs))
    summary = _Summary()
    for each in results:
        summary.add(each)
    if as_json:
        click.echo(json.dumps(summary.to_json(), indent=2))
    else:
        _print(console, summary)
    for failure in summary.failures[:_FAILURES_SHOWN]:
        is_first = failure is summary.failures[0] and not reduced
        console.print(explain(failure, must_shrink=must_shrink and is_first), markup=False)
    sys.exit(1 if summary.failures else 0)


def explain(result: Result, *, must_shrink: bool = True) -> str:
    """Describe the failure: what failed, the end of its trace, how to replay it, and a shorter run that fails so."""
    described = _describe(result)
    if not must_shrink:
        return described
    shrunk = shrink(result)
    if shrunk.result is result:
        return f"{described}\n\n{shrunk.runs} shorter runs do not fail like this."
    return (
        f"{described}\n\nA shorter run that fails like this, the best of {shrunk.runs}: {shrunk.result.steps:,} steps "
        f"in place of {result.steps:,}.\n{_describe(shrunk.result)}"
    )


def _describe(result: Result) -> str:
    workloads = ",".join(result.workloads)
    reduction = f' --reduction "{result.reduction}"' if str(result.reduction) else ""
    return (
        f"\nseed {result.seed}, workloads {workloads}: {result.failure}\n\nThe end of its trace:\n"
        f"{result.tail(_TAIL_LINES)}\n\nReplay it: python -m tests.simulation --seed {result.seed} "
        f"--workload {workloads} --profile {result.profile}{reduction} --trace\n"
        f"Keep it: add `{result.seed} {workloads} # why` to tests/simulation/regressions.txt"
    )


def _parse_reduction(text: str) -> Reduction:
    try:
        return parse_reduction(text)
    except ValueError as error:
        raise click.UsageError(f"--reduction: {error}") from error


def _parse_range(text: str) -> range:
    first, dots, end = text.partition("..")
    if not dots or not first.isdigit() or not end.isdigit() or int(first) >= int(end):
        raise click.UsageError(f"--seeds {text}: use A..B with A below B")
    return range(int(first), int(end))


def _run_all(runs: list[tuple[int, str, str]], jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(_run_one, runs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_run_one, runs, chunksize=20)


def _run_one(wanted: tuple[int, str, str]) -> Result:
    result = run(*wanted)
    # A trace may hold anything, so only its text crosses from one process to another.
    return replace(result, trace=as_text(result.trace[-_TAIL_LINES:]) if result.failure is not None else [])


def _progress(console: Console, results: Iterator[Result], total: int) -> Iterator[Result]:
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield from progress.track(results, total=total, description="seeds")


def _print(console: Console, summary: _Summary) -> None:
    table = Table("", "", show_header=False)
    add = partial(_add_row, table)
    add("seeds", summary.seeds)
    add("failed seeds", len(summary.failures))
    add("steps", summary.steps)
    add("records acknowledged", summary.acknowledged)
    add("of these lost", summary.lost)
    add("records maybe applied", summary.maybe)
    add("records certainly not applied", summary.failed)
    add("duplicates left by retries", summary.duplicates)
    for fault, count in summary.faults.most_common():
        add(f"fault: {fault}", count)
    console.print(table)


def _add_row(table: Table, name: str, count: int) -> None:
    table.add_row(name, f"{count:,}")


if __name__ == "__main__":
    main()
