"""The workloads: each module installs clients and faults into a simulation. The seed combines them."""

from collections.abc import Callable
from random import Random

from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads import (
    acknowledged,
    auditing,
    claiming,
    commits,
    expiring,
    generations,
    groups,
    jobs,
    machines,
    mirroring,
    moving,
    operating,
    overdue,
    producing,
    scheduling,
    timers,
    transactions,
    waiting,
    zones,
)
from tests.simulation.workloads.pushing import pushing
from tests.simulation.workloads.sharing import fairness, ranking, redriving, sharing, waking

Install = Callable[[Simulation], None]

WORKLOADS: dict[str, Install] = {
    "traffic": producing.traffic,
    "rolling": producing.rolling,
    "numbering": producing.numbering,
    "crowding": producing.crowding,
    "forging": producing.forging,
    "truncation": operating.truncation,
    "pushing": pushing.install,  # after those that it delivers the topics of: a later one is installed before
    "transactions": transactions.install,
    "recreation": operating.recreation,
    "commits": commits.install,
    "groups": groups.install,
    "waiting": waiting.install,
    "timers": timers.install,
    "filtering": producing.filtering,
    "compaction": jobs.compaction,
    "tiering": jobs.tiering,
    "cleaning": jobs.cleaning,
    "zone_loss": zones.zone_loss,
    "outage": zones.outage,
    "zone_moves": zones.zone_moves,
    "repair": zones.repairs,
    "replicate": zones.replicate,
    "scrub": zones.scrubs,
    "recover_zones": zones.zone_recovery,
    "retention": jobs.retention,
    "sweep": jobs.sweeps,
    "freezing": machines.freezing,
    "lagging": machines.lagging,
    "sharing": sharing.install,
    "accepting": sharing.accepting,
    "redriving": redriving.install,
    "waking": waking.install,
    "repeating": sharing.repeating,
    "draining": operating.draining,
    "generations": generations.install,
    "claiming": claiming.install,
    "auditing": auditing.install,
    "inline": producing.inline,
    "sleeping": machines.sleeping,
    "forgetting": transactions.install_forgetting,
    "expiring": expiring.install,
    "ranking": ranking.install,
    "fairness": fairness.install,
    "sharing_fairly": sharing.install_fairly,
    "overdue": overdue.install,
    "scheduling": scheduling.install,
    "mirroring": mirroring.install,
    "moving": moving.install,
    "acknowledged": acknowledged.install,
}
MIXED = "mixed"
OF_ZONES = {"zone_loss", "zone_moves", "recover_zones", "repair", "replicate", "scrub"}  # senseless with one zone
# The seed does not combine these with others. `pushing` would make a run a quarter longer, which is little. But the
# seeds that draw it have not all been run yet. `inline` puts the appends of all others into the log table.
ALONE = {
    *(
        "acknowledged",
        "auditing",
        "claiming",
        "expiring",
        "fairness",
        "forgetting",
        "generations",
        "inline",
        "lagging",
        "mirroring",
        "moving",
        "outage",
        "overdue",
        "pushing",
        "ranking",
        "redriving",
    ),
    *("repeating", "scheduling", "sharing_fairly", "sleeping", "waking"),
}
_TAKE_LONG = {"crowding", "recover_zones", "retention", "sweep"}


def choose(random: Random) -> list[str]:
    """Choose traffic or rolling, and some of the other workloads."""
    chosen = [random.choice(["traffic", "rolling"])]
    others = [name for name in WORKLOADS if name not in {"traffic", "rolling", *ALONE}]
    return chosen + [name for name in others if random.random() < (0.2 if name in _TAKE_LONG else 0.3)]
