"""One or two runs of `tier` at a time move pages and tails to the archive, while few records come, and rolls go on.

At the end of a run, once faults are over, `tier` leaves no tail in the zones.
"""

from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.compaction.tail_move import live_tail
from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.ref import Tier
from penstock_service.compaction.tier import tier
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_BUDGET_MS = 20_000.0
_LEASE_MS_MAX = 2_000
_SETTLED_MS = 10_000.0  # longer than a lease, and than clocks differ
_RUNS_MAX = 10  # a run rolls a few pages of a tail, which may have become long


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("quiet", partitions=1)
    simulation.faults.sluggish = random.choice(
        ["move_tail", "upload", "put_page", "shorten_tail", simulation.faults.sluggish]
    )
    choices = ProducerChoices(records=[10, 20], pace_ms=[40.0, 300.0], max_in_flight=[1], is_batching=False)
    start_producers(simulation, topic, ["q0", "q1", "q2"], choices)
    start_producers(simulation, topic, ["q3", "q4"], choices, is_late=bool(simulation.lasts_ms))
    SimulatedReader(simulation, "qr", topic, is_topic_stable=True).start()
    settings = CompactionSettings(
        age_ms_min=random.choice([0, 0, 300]),
        refs_min=random.choice([2, 1_000]),
        lease_ms=random.choice([50, 200, _LEASE_MS_MAX]),
        zonal_ms_max=random.choice([0, 300, 1_500]),
    )

    def run() -> None:
        for _ in range(random.choice([10, 25])):
            if simulation.lasts_ms and random.random() < 0.5:
                simulation.pause_until_burst()
            simulation.scheduler.pause(random.uniform(10.0, 600.0 + simulation.lasts_ms / 12))
            try:
                done = simulation.call(partial(tier, budget_ms=_BUDGET_MS, settings=settings), is_read=False)
            except PenstockError as error:
                simulation.scheduler.note("not tiered", error)
            else:
                simulation.scheduler.note("tiered", done)

    for number in range(random.choice([1, 2])):
        simulation.work(f"tier{number}", run)
    simulation.final_checks.append(partial(_check_tails, simulation))


def _check_tails(simulation: Simulation) -> None:
    """Check that no ref that a reader may read is left in the zones, of those that are in a tail."""
    simulation.jump(_SETTLED_MS)
    settings = CompactionSettings(age_ms_min=0, zonal_ms_max=0)
    for _ in range(_RUNS_MAX):
        done = tier(simulation.undisturbed(), budget_ms=1_000_000_000, settings=settings)
        expect(done.is_finished and not done.failures and not done.held, f"not everything could be moved: {done}")
    for topic in simulation.stores.topics.list():
        keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
        for key, head in simulation.stores.log.heads(keys).items():
            left = [each for each in live_tail(head) if each.ref.tier is not Tier.ARCHIVE]
            expect(not left, f"the tail of {key} keeps out of the archive what it should not: {left}")
