"""Forgers write other bytes under the numbers of idempotent producers, who race them for each sequence."""

from penstock_core.limits import EVICTION_PRODUCERS_MIN, HEAD_PRODUCERS_KEPT
from tests.simulation.clients.forger import SimulatedForger
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("coveted", partitions=1)
    is_crowded = random.random() < 0.3  # victims leave the head, and come back
    for number in range(HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN + 2 if is_crowded else random.choice([1, 3])):
        SimulatedProducer(
            simulation,
            f"v{number}",
            topic,
            records=random.choice([2, 4]) if is_crowded else random.choice([10, 20]),
            acks=simulation.acks_allowed[0],
            pace_ms=random.choice([10.0, 100.0, 300.0]),
            max_in_flight=1,
            is_batching=random.random() < 0.3,
            is_idempotent=True,
        ).start()
    SimulatedForger(simulation, "forger", topic, records=10, pace_ms=random.choice([50.0, 200.0])).start()
    SimulatedReader(simulation, "vr", topic, is_topic_stable=True).start()
