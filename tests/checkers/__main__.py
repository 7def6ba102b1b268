"""`python -m tests.checkers share --states 5000000`: explore each search of a state machine, or find a mutant."""

import click

from tests.checkers.breadth_first import Checker
from tests.checkers.push.mutants import LANES
from tests.checkers.share.mutants import SHARE_GROUPS

CHECKERS = {"share": SHARE_GROUPS, "push": LANES}


def _command(name: str, checker: Checker) -> click.Command:
    @click.command(name, context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--states", default=checker.states, show_default=True, help="Distinct states of each search.")
    @click.option("--only", type=click.Choice([*checker.searches]), help="One search only.")
    @click.option("--jobs", default=2, show_default=True, help="Processes.")
    @click.option("--mutant", type=click.Choice(sorted(checker.mutants)), help="Search a wrong state machine instead.")
    def search(states: int, only: str | None, jobs: int, mutant: str | None) -> None:
        """Explore the state machine. Fails if an invariant is broken, or if a mutant is not found."""
        if mutant is not None:
            checker.expect_violation(mutant, states)
        checker.search_each([only] if only else [*checker.searches], states, jobs)

    return search


main = click.Group(commands={name: _command(name, checker) for name, checker in CHECKERS.items()})

if __name__ == "__main__":
    main()
