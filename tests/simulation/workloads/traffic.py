"""Concurrent producers and readers of one topic, with lost replies, retries and every kind of acks."""

from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("orders", partitions=random.choice([1, 1, 2, 3]))
    for number in range(random.choice([1, 2, 3])):
        SimulatedProducer(
            simulation,
            f"p{number}",
            topic,
            records=random.choice([10, 30, 50]),
            acks=random.choice(simulation.acks_allowed),
            pace_ms=random.choice([1.0, 20.0, 100.0]),
            max_in_flight=random.choice([1, 2]),
        ).start()
    for number in range(4 if simulation.lasts_ms else 0):
        SimulatedProducer(
            simulation,
            f"late{number}",
            topic,
            records=random.choice([5, 15]),
            acks=random.choice(simulation.acks_allowed),
            pace_ms=random.choice([1.0, 100.0]),
        ).start(delay_ms=simulation.later())
    for number in range(random.choice([1, 2])):
        SimulatedReader(simulation, f"r{number}", topic, is_topic_stable=True).start()
