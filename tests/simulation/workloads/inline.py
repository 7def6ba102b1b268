"""Small appends go into the log table: those of this workload, and those of all workloads that run with it.

The bound on their size differs from run to run, so that a partition has refs of both kinds. The items may be out of
reach for a while, as a table that DynamoDB throttles. Some appends come in requests with several partitions.
"""

from random import Random

from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation

_BYTES_MAX = (160, 300, 4_096)  # a batch of one record makes a segment of some 150 bytes


def bytes_max(seed: int) -> int:
    """The size of the largest inline segment of the run. It is no draw of the run, which other workloads share."""
    return Random(f"inline {seed}").choice(_BYTES_MAX)


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("small", partitions=random.choice([1, 1, 3]))
    simulation.faults.sluggish = random.choice(["put", "get_wholes", "delete", simulation.faults.sluggish])
    choices = ProducerChoices(records=[10, 25], pace_ms=[1.0, 40.0, 300.0], max_in_flight=[1, 2])
    start_producers(simulation, topic, ["s0", "s1", "s2"], choices)
    if simulation.lasts_ms:
        start_producers(simulation, topic, ["s3", "s4", "s5"], choices, is_late=True)
    for number in range(2):
        SimulatedReader(simulation, f"sr{number}", topic, is_topic_stable=True).start()

    def trouble() -> None:
        for _ in range(random.choice([0, 1, 3])):
            simulation.scheduler.pause(random.uniform(10.0, 1_000.0 + simulation.lasts_ms / 4))
            simulation.storage.zone_trouble["inline"] = random.choice(["refuses", "hangs"])
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0))
            simulation.storage.zone_trouble.pop("inline", None)

    simulation.work("inline trouble", trouble)
