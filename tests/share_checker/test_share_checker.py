"""The shipped state machine of share groups holds its invariants, and the search finds wrong ones."""

import pytest
from click.testing import CliRunner

from tests.share_checker.__main__ import main, search
from tests.share_checker.mutants import MUTANTS, search_mutant

ORDERINGS = ("none", "key")
SHALLOW, DEEP = 30_000, 5_000_000  # states


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_shipped_functions_hold_every_invariant(ordering: str) -> None:
    found = search(SHALLOW, 1, ordering)
    assert (found.violation, found.trace) == ("", ())
    assert found.states >= SHALLOW
    assert found.depth >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_state_machine_is_found_with_a_short_trace(name: str) -> None:
    found = search_mutant(name, 100_000)
    assert found.violation
    assert 2 <= len(found.trace) <= 14
    assert found.trace[-1].endswith(found.violation)


def test_same_search_finds_the_same_trace_twice() -> None:
    first, second = (search_mutant("bases-not-compared", 50_000) for _ in range(2))
    assert (first.states, first.violation, first.trace) == (second.states, second.violation, second.trace)


def test_command_fails_when_a_mutant_is_not_found() -> None:
    found = CliRunner().invoke(main, ["--mutant", "locks-never-last", "--states", "3000"])
    assert (found.exit_code, "two workers hold a record's lock" in found.output) == (0, True)
    missed = CliRunner().invoke(main, ["--mutant", "bases-not-compared", "--states", "100"])
    assert (missed.exit_code, "VIOLATION" in missed.output) == (1, False)


@pytest.mark.minutes
def test_ten_million_states_hold_every_invariant() -> None:
    result = CliRunner().invoke(main, ["--states", str(DEEP)])
    print(result.output)
    assert result.exit_code == 0, result.output
    assert result.output.count("5,000,") == len(ORDERINGS)
