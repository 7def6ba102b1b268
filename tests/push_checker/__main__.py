"""`python -m tests.push_checker --states 1000000`: explore each bound, or find a mutant."""

from collections.abc import Mapping
from functools import partial

import click

from tests.push_checker.model import Bounds, Model
from tests.push_checker.mutants import MUTANTS, search_mutant
from tests.support.breadth_first import Found, expect_violation, explore, search_each

SEARCHES: Mapping[str, Bounds] = {
    "one-record": Bounds(faults=0, appends=1, failures=0, changes=0, slices=0),
    "faults": Bounds(),
    "two-partitions": Bounds(partitions=2, failures=2, pauses=(1, 3), changes=0),
    "two-lanes": Bounds(partitions=2, lanes_max=2, changes=2),
    "resumed": Bounds(starts_paused=True, changes=3),
    "doubled-messages": Bounds(doubles=2, changes=0, slices=0),
}


def search(states: int, name: str) -> Found:
    """Explore the shipped functions within those bounds."""
    return explore(Model(SEARCHES[name]), states)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--states", default=1_000_000, show_default=True, help="Distinct states of each search.")
@click.option("--only", type=click.Choice(sorted(SEARCHES)), help="One search only.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--mutant", type=click.Choice(sorted(MUTANTS)), help="Search a wrong lane or delivery instead.")
def main(states: int, only: str | None, jobs: int, mutant: str | None) -> None:
    """Explore the lanes of push subscriptions. Fails if an invariant is broken, or if a mutant is not found."""
    if mutant is not None:
        expect_violation(mutant, search_mutant(mutant, states))
    names = [only] if only else [*SEARCHES]
    search_each(partial(search, states), {name: name for name in names}, jobs)


if __name__ == "__main__":
    main()
