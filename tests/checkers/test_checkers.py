"""The shipped state machines hold their invariants, and the searches find wrong ones."""

from typing import NamedTuple

import pytest
from click.testing import CliRunner

from tests.checkers.__main__ import CHECKERS, main

SHALLOW = 30_000  # states


class Expected(NamedTuple):
    """How deep a shallow search comes, how soon and by how short a trace mutants are found, and two of them."""

    depth: int
    mutant_states: int
    trace: int
    found: tuple[str, int, str]  # in so many states, by that violation
    missed: str
    states: int
    told: tuple[str, int]  # what the output of the whole search has, and how often


EXPECTED = {
    "share": Expected(
        depth=4,
        mutant_states=100_000,
        trace=14,
        found=("locks-never-last", 3000, "two workers hold a record's lock"),
        missed="bases-not-compared",
        states=5_000_000,
        told=("5,000,", 2),
    ),
    "push": Expected(
        depth=6,
        mutant_states=200_000,
        trace=24,
        found=("rests-without-postponing", 5000, "sleeps for a lane, and is gone"),
        missed="arms-before-release",
        states=1_000_000,
        told=("one-record: 2", 1),  # all there are
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "search"), [(name, search) for name, checker in CHECKERS.items() for search in checker.searches]
)
def test_shipped_machine_holds_every_invariant(name: str, search: str) -> None:
    found = CHECKERS[name].search(search, SHALLOW)
    assert (found.violation, found.trace) == ("", ())
    assert found.states >= SHALLOW
    assert found.depth >= EXPECTED[name].depth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mutant"), [(name, mutant) for name, checker in CHECKERS.items() for mutant in checker.mutants]
)
def test_wrong_machine_is_found_with_a_short_trace(name: str, mutant: str) -> None:
    found = CHECKERS[name].search_mutant(mutant, EXPECTED[name].mutant_states)
    assert found.violation
    assert 2 <= len(found.trace) <= EXPECTED[name].trace
    assert found.trace[-1].endswith(found.violation)


@pytest.mark.parametrize(("name", "states"), [("share", 50_000), ("push", 20_000)])
def test_same_search_finds_the_same_trace_twice(name: str, states: int) -> None:
    first, second = (CHECKERS[name].search_mutant(EXPECTED[name].missed, states) for _ in range(2))
    assert (first.states, first.violation, first.trace) == (second.states, second.violation, second.trace)


@pytest.mark.parametrize("name", CHECKERS)
def test_command_fails_when_a_mutant_is_not_found(name: str) -> None:
    mutant, states, violation = EXPECTED[name].found
    found = CliRunner().invoke(main, [name, "--mutant", mutant, "--states", str(states)])
    assert (found.exit_code, violation in found.output) == (0, True)
    missed = CliRunner().invoke(main, [name, "--mutant", EXPECTED[name].missed, "--states", "100"])
    assert (missed.exit_code, "VIOLATION" in missed.output) == (1, False)


@pytest.mark.minutes
@pytest.mark.parametrize("name", CHECKERS)
def test_million_states_hold_every_invariant(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--states", str(EXPECTED[name].states)])
    print(result.output)
    assert result.exit_code == 0, result.output
    text, times = EXPECTED[name].told
    assert result.output.count(text) == times
