"""What happens in a run: each module installs clients and troubles into a world; runs combine them by their seed."""

from collections.abc import Callable
from random import Random

from tests.simulation.workloads import (
    cleaning,
    commits,
    compaction,
    groups,
    keeper,
    numbering,
    recreation,
    repair,
    replicate,
    retention,
    rolling,
    scrub,
    sweep,
    traffic,
    transactions,
    truncation,
    zone_loss,
    zone_moves,
)
from tests.simulation.world import World

Install = Callable[[World], None]

WORKLOADS: dict[str, Install] = {
    "traffic": traffic.install,
    "rolling": rolling.install,
    "numbering": numbering.install,
    "truncation": truncation.install,
    "transactions": transactions.install,
    "recreation": recreation.install,
    "commits": commits.install,
    "groups": groups.install,
    "compaction": compaction.install,
    "cleaning": cleaning.install,
    "zone_loss": zone_loss.install,
    "zone_moves": zone_moves.install,
    "repair": repair.install,
    "replicate": replicate.install,
    "scrub": scrub.install,
    "keeper": keeper.install,
    "retention": retention.install,
    "sweep": sweep.install,
}
MIXED = "mixed"
_TAKE_MINUTES = {"keeper", "retention", "sweep"}


def choose(random: Random) -> list[str]:
    """Traffic or rolling, and some of the others."""
    chosen = [random.choice(["traffic", "rolling"])]
    others = [name for name in WORKLOADS if name not in {"traffic", "rolling"}]
    return chosen + [name for name in others if random.random() < (0.2 if name in _TAKE_MINUTES else 0.3)]
