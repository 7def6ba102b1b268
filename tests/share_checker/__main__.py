"""`python -m tests.share_checker --states 5000000`: explore both orderings, or find a mutant."""

from functools import partial

import click

from tests.share_checker.machine import Machine
from tests.share_checker.model import Bounds, Model
from tests.share_checker.mutants import MUTANTS, search_mutant
from tests.support.breadth_first import Found, expect_violation, explore, search_each

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
        expect_violation(mutant, search_mutant(mutant, states))
    orderings = [ordering] if ordering else [*ORDERINGS]
    search_each(partial(search, states, drained), {f"ordering {each}": each for each in orderings}, jobs)


if __name__ == "__main__":
    main()
