"""One partition has more idempotent producers than its head keeps. They leave the head, come back, and repeat sends."""

from penstock_core.limits import EVICTION_PRODUCERS_MIN, HEAD_PRODUCERS_KEPT
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("numbered", partitions=1)
    count = HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + random.choice([2, 10])
    choices = ProducerChoices(
        records=[2, 4],
        acks=simulation.acks_allowed[0],
        pace_ms=[10.0, 1_000.0],
        max_in_flight=[1],
        is_batching=False,
        is_idempotent=True,
    )
    start_producers(simulation, topic, [f"n{number}" for number in range(count)], choices)
    SimulatedReader(simulation, "nr", topic, is_topic_stable=True).start()
