"""Breadth-first search over the model's states, and the shortest trace to a violation.

A state is remembered by 64 bits. Two of ten million states have the same by a chance of about 1 in 400,000.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from tests.share_checker.machine import InvariantError
from tests.share_checker.model import Model, State


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found: states, the depth that it searched whole, and a violation with the steps that lead to it."""

    states: int
    shares: int
    depth: int
    seconds: float
    violation: str = ""
    trace: Sequence[str] = ()

    @property
    def states_per_second(self) -> float:
        """Distinct states in a second."""
        return self.states / max(self.seconds, 1e-9)


def explore(model: Model, states_max: int) -> Found:
    """Search until `states_max` distinct states are known, or all, or an invariant is broken."""
    begun = monotonic()
    start = model.start()
    seen = {hash(start)}
    level, depth = [start], 0
    while level and len(seen) < states_max:
        following: list[State] = []
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
                    shares=len(model.machine.states),
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
    return Found(states=len(seen), shares=len(model.machine.states), depth=depth, seconds=monotonic() - begun)


def trace_to(model: Model, target: State) -> list[str]:
    """The names of the steps from the start to the state, and of the last step, which breaks an invariant.

    Searches again and remembers where each state came from, so that a search without a violation need not.
    """
    start = model.start()
    came_from: dict[State, tuple[State, str]] = {}
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


def last_step(model: Model, state: State) -> str:
    """What happens at the step from this state that breaks an invariant."""
    steps = model.steps(state)
    done = 0
    try:
        for _ in steps:
            done += 1
    except InvariantError as violation:
        return f"step {done + 1} from there: {violation}"
    raise AssertionError("no step from the state breaks an invariant")
