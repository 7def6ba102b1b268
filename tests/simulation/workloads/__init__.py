"""What happens in a run: each module installs clients and troubles into a world; runs combine them by their seed."""

from collections.abc import Callable
from random import Random

from tests.simulation.workloads import (
    commits,
    keeper,
    recreation,
    repair,
    rolling,
    traffic,
    truncation,
    zone_loss,
    zone_moves,
)
from tests.simulation.world import World

Install = Callable[[World], None]

WORKLOADS: dict[str, Install] = {
    "traffic": traffic.install,
    "rolling": rolling.install,
    "truncation": truncation.install,
    "recreation": recreation.install,
    "commits": commits.install,
    "zone_loss": zone_loss.install,
    "zone_moves": zone_moves.install,
    "repair": repair.install,
    "keeper": keeper.install,
}
MIXED = "mixed"
BY_NAME_ONLY = {"keeper"}  # its minutes of simulated time cost too much in every run


def choose(random: Random) -> list[str]:
    """Traffic or rolling, and some of the others."""
    chosen = [random.choice(["traffic", "rolling"])]
    others = [name for name in WORKLOADS if name not in {"traffic", "rolling", *BY_NAME_ONLY}]
    return chosen + [name for name in others if random.random() < 0.3]
