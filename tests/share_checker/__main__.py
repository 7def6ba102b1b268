"""`python -m tests.share_checker --states 5000000`: explore both orderings, or find a mutant."""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click

from tests.share_checker.machine import Machine
from tests.share_checker.model import Bounds, Model
from tests.share_checker.mutants import MUTANTS, search_mutant
from tests.support.breadth_first import Found, explore

ORDERINGS = ("none", "key")


def search(states: int, drained_share: int, ordering: str) -> Found:
    """Explore the shipped functions with that ordering."""
    return explore(Model(Machine(ordering), Bounds(drained_share=drained_share)), states)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--states", default=5_000_000, show_default=True, help="Distinct states for each ordering.")
@click.option("--ordering", type=click.Choice(ORDERINGS), help="One ordering only.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--drained", default=1, show_default=True, help="One share state of so many is worked off to its end.")
@click.option("--mutant", type=click.Choice(sorted(MUTANTS)), help="Search a wrong state machine instead.")
def main(states: int, ordering: str | None, jobs: int, drained: int, mutant: str | None) -> None:
    """Explore the state machine of share groups. Fails if an invariant is broken, or if a mutant is not found."""
    if mutant is not None:
        found = search_mutant(mutant, states)
        _show(mutant, found)
        sys.exit(not found.violation)
    orderings = [ordering] if ordering else [*ORDERINGS]
    with ProcessPoolExecutor(jobs) as pool:
        results = [*pool.map(partial(search, states, drained), orderings)]
    for name, found in zip(orderings, results, strict=True):
        _show(f"ordering {name}", found)
    sys.exit(any(found.violation for found in results))


def _show(name: str, found: Found) -> None:
    click.echo(
        f"{name}: {found.states:,} states, {found.size}, whole to depth {found.depth}, "
        f"{found.seconds:.0f} s, {found.states_per_second:,.0f} states/s"
    )
    if found.violation:
        click.echo(f"  VIOLATION: {found.violation}")
        for number, step in enumerate(found.trace, start=1):
            click.echo(f"  {number}. {step}")


if __name__ == "__main__":
    main()
