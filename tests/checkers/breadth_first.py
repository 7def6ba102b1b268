"""Breadth-first search over a model's states, the shortest trace to a violation, and the searches of a state machine.

A state is remembered by 64 bits. Two of ten million states have the same by a chance of about 1 in 400,000.
"""

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, NoReturn, Protocol, TypeVar

import click

S = TypeVar("S", bound=Hashable)


class InvariantError(Exception):
    """An invariant does not hold."""


class Model(Protocol[S]):
    """A model that can be searched."""

    def start(self) -> S:
        """The first state."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Each step from the state, with its name. Raises InvariantError where an invariant is broken."""

    def size(self) -> str:
        """What the model counts besides its states, for people to read."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found: states, the depth that it searched whole, and a violation with the steps that lead to it."""

    states: int
    size: str
    depth: int
    seconds: float
    violation: str = ""
    trace: Sequence[str] = ()

    @property
    def states_per_second(self) -> float:
        """Distinct states in a second."""
        return self.states / max(self.seconds, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A rule left out: by a model with a wrong part, or by a patch of a shipped function."""

    model: Callable[[], Model[Any]]
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True, kw_only=True)
class Checker:
    """The searches of a state machine, each by the maker of its model, and the mutants that must be found."""

    states: int  # of each search, unless you ask for another number
    searches: Mapping[str, Callable[[], Model[Any]]]
    mutants: Mapping[str, Mutant]

    def search(self, name: str, states_max: int) -> Found:
        """Explore the shipped functions."""
        return explore(self.searches[name](), states_max)

    def search_mutant(self, name: str, states_max: int) -> Found:
        """Explore the mutant."""
        mutant = self.mutants[name]
        with mutant.patched():
            return explore(mutant.model(), states_max)

    def search_each(self, names: Sequence[str], states_max: int, jobs: int) -> NoReturn:
        """Make these searches, `jobs` at a time, print them, and exit: with 1 if an invariant is broken."""
        with ProcessPoolExecutor(jobs) as pool:
            results = [*pool.map(_made, [self.searches[name] for name in names], [states_max] * len(names))]
        for name, found in zip(names, results, strict=True):
            _show(name, found)
        sys.exit(any(found.violation for found in results))

    def expect_violation(self, name: str, states_max: int) -> NoReturn:
        """Print the search of a mutant, and exit: with 1 if it was not found."""
        found = self.search_mutant(name, states_max)
        _show(name, found)
        sys.exit(not found.violation)


def _made(model: Callable[[], Model[Any]], states_max: int) -> Found:
    return explore(model(), states_max)


def explore(model: Model[S], states_max: int) -> Found:
    """Search until `states_max` distinct states are known, or all, or an invariant is broken."""
    begun = monotonic()
    start = model.start()
    seen = {hash(start)}
    level: list[S] = [start]
    depth = 0
    while level and len(seen) < states_max:
        following: list[S] = []
        for state in level:
            try:
                for _, after in model.steps(state):
                    digest = hash(after)
                    if digest not in seen:
                        seen.add(digest)
                        following.append(after)
            except InvariantError as violation:
                return Found(
                    states=len(seen),
                    size=model.size(),
                    depth=depth,
                    seconds=monotonic() - begun,
                    violation=str(violation),
                    trace=trace_to(model, state),
                )
            if len(seen) >= states_max:
                break
        else:
            depth += 1
        level = following
    return Found(states=len(seen), size=model.size(), depth=depth, seconds=monotonic() - begun)


def trace_to(model: Model[S], target: S) -> list[str]:
    """The names of the steps from the start to the state, and of the last step, which breaks an invariant.

    Searches again and remembers where each state came from, so that a search without a violation need not.
    """
    start = model.start()
    came_from: dict[S, tuple[S, str]] = {}
    level = [start]
    while target not in came_from and target != start:
        following = []
        for state in level:
            for name, after in model.steps(state):
                if after not in came_from and after != start:
                    came_from[after] = (state, name)
                    following.append(after)
                    if after == target:
                        break
            if target in came_from:
                break
        level = following
    names = [last_step(model, target)]
    while target != start:
        target, name = came_from[target]
        names.append(name)
    return names[::-1]


def last_step(model: Model[S], state: S) -> str:
    """What happens at the step from this state that breaks an invariant."""
    steps = model.steps(state)
    done = 0
    try:
        for _ in steps:
            done += 1
    except InvariantError as violation:
        return f"step {done + 1} from there: {violation}"
    raise AssertionError("no step from the state breaks an invariant")


def _show(name: str, found: Found) -> None:
    click.echo(
        f"{name}: {found.states:,} states, {found.size}, whole to depth {found.depth}, "
        f"{found.seconds:.0f} s, {found.states_per_second:,.0f} states/s"
    )
    if found.violation:
        click.echo(f"  VIOLATION: {found.violation}")
        for number, step in enumerate(found.trace, start=1):
            click.echo(f"  {number}. {step}")
