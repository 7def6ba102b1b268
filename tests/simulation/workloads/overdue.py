"""Records expire while share groups and subscriptions work on them: fresh ones, under locks, in waits, at their burial.

Workers are slow and die, targets fail and are out, so that many records are over before anybody gets them. Nothing that
is over is delivered or buried, and nothing else is finished for its time.
"""

from random import Random

from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.pushing import pushing
from tests.simulation.workloads.sharing.worked_group import WorkedGroup, by_last_digit, draw_config, draw_habits

_TOPIC, _GROUP, _DEAD = "overdue", "overdue-workers", "overdue.dead"
_PUSHED_SHARE = 0.4  # of the runs have subscriptions, and the others share groups
_SOON_MS = (1, 500, 2_000, 5_000, 5_000, 20_000, None)
_AMONG_OUTAGES_MS = (1, 5_000, 30_000, 90_000, 300_000, None, None)


def install(simulation: Simulation) -> None:
    simulation.oracle.expiries.is_on = True
    if simulation.scheduler.random.random() < _PUSHED_SHARE:
        pushing.install(simulation, _AMONG_OUTAGES_MS)
    else:
        _share(simulation, simulation.scheduler.random)


def _share(simulation: Simulation, random: Random) -> None:
    is_filtered = random.random() < 0.2
    topic = simulation.topic(_TOPIC, partitions=random.choice([1, 2]))
    config = draw_config(random, _DEAD, is_filtered=is_filtered)
    group = WorkedGroup.put(simulation, _GROUP, topic, config)
    for number in range(random.choice([1, 2])):
        producer = SimulatedProducer(
            simulation,
            f"ov{number}",
            topic,
            records=random.choice([20, 40]),
            acks=Acks.QUORUM,
            pace_ms=random.choice([1.0, 100.0, 500.0]),
            is_tagging=is_filtered,
            key_of=by_last_digit if config["ordering"] == "key" else None,
            expires_in_ms=_SOON_MS,
        )
        producer.start()
    group.start_workers([f"ow{number}" for number in range(random.choice([1, 2, 4]))], draw_habits(random))
    simulation.final_checks.append(group.drain)
    simulation.final_checks.append(group.check_deletion)
