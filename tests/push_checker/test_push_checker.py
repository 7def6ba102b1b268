"""The shipped lanes hold their invariants, and the search finds wrong ones."""

import pytest
from click.testing import CliRunner

from tests.push_checker.__main__ import SEARCHES, main, search
from tests.push_checker.mutants import MUTANTS, search_mutant

SHALLOW, DEEP = 30_000, 1_000_000  # states


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_shipped_lanes_hold_every_invariant(name: str) -> None:
    found = search(SHALLOW, name)
    assert (found.violation, found.trace) == ("", ())
    assert found.states >= SHALLOW
    assert found.depth >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_lane_or_delivery_is_found_with_a_short_trace(name: str) -> None:
    found = search_mutant(name, 200_000)
    assert found.violation
    assert 2 <= len(found.trace) <= 24
    assert found.trace[-1].endswith(found.violation)


def test_same_search_finds_the_same_trace_twice() -> None:
    first, second = (search_mutant("arms-before-release", 20_000) for _ in range(2))
    assert (first.states, first.violation, first.trace) == (second.states, second.violation, second.trace)


def test_command_fails_when_a_mutant_is_not_found() -> None:
    found = CliRunner().invoke(main, ["--mutant", "rests-without-postponing", "--states", "5000"])
    assert (found.exit_code, "sleeps for a lane, and is gone" in found.output) == (0, True)
    missed = CliRunner().invoke(main, ["--mutant", "arms-before-release", "--states", "100"])
    assert (missed.exit_code, "VIOLATION" in missed.output) == (1, False)


@pytest.mark.minutes
def test_million_states_hold_every_invariant() -> None:
    result = CliRunner().invoke(main, ["--states", str(DEEP)])
    print(result.output)
    assert result.exit_code == 0, result.output
    assert "one-record: 2" in result.output  # all there are
