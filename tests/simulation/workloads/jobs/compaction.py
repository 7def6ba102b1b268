"""One or two jobs merge small refs while clients write, read and remove them.

A job may be killed anywhere, and the archive may be away for a while.
"""

from functools import partial

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_service.compaction.compact import compact, partitions_of
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation

_BUDGET_MS = 20_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("merged", partitions=1)
    choices = ProducerChoices(records=[20, 40], pace_ms=[60.0, 200.0], is_batching=False)
    start_producers(simulation, topic, ["m0", "m1", "m2", "m3"], choices)
    start_producers(simulation, topic, ["m4", "m5"], choices, is_late=bool(simulation.lasts_ms))
    SimulatedReader(simulation, "mr", topic, is_topic_stable=True).start()
    settings = CompactionSettings(
        age_ms_min=random.choice([0, 0, 500]),
        refs_min=random.choice([2, 2, 16]),
        ref_bytes=random.choice([200, 1_000, 10_000]),
        segment_bytes=random.choice([1_500, 1_500, 5_000]),  # 80 bytes an append: few enough gets for a run to survive
        lease_ms=random.choice([50, 200, 2_000]),
    )

    def run() -> None:
        for _ in range(random.choice([10, 25])):
            simulation.scheduler.pause(random.uniform(10.0, 600.0 + simulation.lasts_ms / 12))
            for name, partition in partitions_of(simulation.bare, ()):
                try:
                    done = simulation.call(
                        partial(compact, topic_name=name, partition=partition, settings=settings, budget_ms=_BUDGET_MS),
                        is_read=False,
                    )
                except PenstockError as error:
                    simulation.scheduler.note("not compacted", error)
                else:
                    simulation.scheduler.note("compacted", name, partition, done.runs, done.refused, done.failures)

    def trouble() -> None:
        simulation.scheduler.pause(random.uniform(0.0, 3_000.0))
        simulation.storage.zone_trouble["archive"] = random.choice(["refuses", "hangs"])
        simulation.scheduler.pause(random.uniform(0.0, 2_000.0))
        del simulation.storage.zone_trouble["archive"]

    for number in range(random.choice([1, 2])):
        simulation.work(f"compaction{number}", run)
    if random.random() < 0.3:
        simulation.work("archive trouble", trouble)
