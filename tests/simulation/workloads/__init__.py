"""The workloads: each module installs clients and faults into a simulation. The seed combines them."""

from collections.abc import Callable
from random import Random

from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads import (
    auditing,
    claiming,
    commits,
    crowding,
    draining,
    filtering,
    forging,
    freezing,
    generations,
    groups,
    inline,
    numbering,
    recreation,
    rolling,
    sleeping,
    timers,
    traffic,
    transactions,
    truncation,
    waiting,
    zone_loss,
    zone_moves,
)
from tests.simulation.workloads.jobs import (
    cleaning,
    compaction,
    recover_zones,
    repair,
    replicate,
    retention,
    scrub,
    sweep,
    tiering,
)
from tests.simulation.workloads.pushing import pushing
from tests.simulation.workloads.sharing import accepting, redriving, repeating, sharing, waking

Install = Callable[[Simulation], None]

WORKLOADS: dict[str, Install] = {
    "traffic": traffic.install,
    "rolling": rolling.install,
    "numbering": numbering.install,
    "crowding": crowding.install,
    "forging": forging.install,
    "truncation": truncation.install,
    "pushing": pushing.install,  # after those that it delivers the topics of: a later one is installed before
    "transactions": transactions.install,
    "recreation": recreation.install,
    "commits": commits.install,
    "groups": groups.install,
    "waiting": waiting.install,
    "timers": timers.install,
    "filtering": filtering.install,
    "compaction": compaction.install,
    "tiering": tiering.install,
    "cleaning": cleaning.install,
    "zone_loss": zone_loss.install,
    "zone_moves": zone_moves.install,
    "repair": repair.install,
    "replicate": replicate.install,
    "scrub": scrub.install,
    "recover_zones": recover_zones.install,
    "retention": retention.install,
    "sweep": sweep.install,
    "freezing": freezing.install,
    "sharing": sharing.install,
    "accepting": accepting.install,
    "redriving": redriving.install,
    "waking": waking.install,
    "repeating": repeating.install,
    "draining": draining.install,
    "generations": generations.install,
    "claiming": claiming.install,
    "auditing": auditing.install,
    "inline": inline.install,
    "sleeping": sleeping.install,
    "forgetting": transactions.install_forgetting,
}
MIXED = "mixed"
OF_ZONES = {"zone_loss", "zone_moves", "recover_zones", "repair", "replicate", "scrub"}  # senseless with one zone
# The seed does not combine these with others. `pushing` would make a run a quarter longer, which is little. But the
# seeds that draw it have not all been run yet. `inline` puts the appends of all others into the log table.
ALONE = {
    *("auditing", "claiming", "forgetting", "generations", "inline", "pushing", "redriving", "repeating", "sleeping"),
    "waking",
}
_TAKE_LONG = {"crowding", "recover_zones", "retention", "sweep"}


def choose(random: Random) -> list[str]:
    """Choose traffic or rolling, and some of the other workloads."""
    chosen = [random.choice(["traffic", "rolling"])]
    others = [name for name in WORKLOADS if name not in {"traffic", "rolling", *ALONE}]
    return chosen + [name for name in others if random.random() < (0.2 if name in _TAKE_LONG else 0.3)]
