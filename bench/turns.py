"""Sides of a question take turns, so that other work of the machine falls on all of them.

Each round runs each side once. Every other round has the opposite order, so no side is always the first. A warm-up
round comes first, and does not count.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Sample = TypeVar("Sample")


def take_turns(sides: Sequence[Callable[[], Sample]], rounds: int, *, has_warm_up: bool = True) -> list[list[Sample]]:
    """The samples of each side, one a round. Raises what a side raises."""
    if has_warm_up:
        for side in sides:
            side()
    samples: list[list[Sample]] = [[] for _ in sides]
    for number in range(rounds):
        places = range(len(sides))
        for place in places if number % 2 else reversed(places):
            samples[place].append(sides[place]())
    return samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of some rounds, and the lowest and the highest of them."""

    median: float
    low: float
    high: float

    def words(self) -> str:
        """Lowest to highest, such as `9,800 to 10,400`."""
        return f"{_short(self.low)} to {_short(self.high)}"


def spread(values: Iterable[float]) -> Spread:
    """Raises StatisticsError for no values."""
    found = sorted(values)
    return Spread(median=statistics.median(found), low=found[0], high=found[-1])


def _short(value: float) -> str:
    """Whole from 100 on, else three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
