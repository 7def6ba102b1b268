"""Concurrent producers and readers of one topic, with lost replies, retries and every kind of acks."""

from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("orders", partitions=random.choice([1, 1, 2, 3]))
    names = [f"p{number}" for number in range(random.choice([1, 2, 3]))]
    choices = ProducerChoices(records=[10, 30, 50], pace_ms=[1.0, 20.0, 100.0], max_in_flight=[1, 2])
    start_producers(simulation, topic, names, choices)
    if simulation.lasts_ms:
        late = ProducerChoices(records=[5, 15], pace_ms=[1.0, 100.0])
        start_producers(simulation, topic, [f"late{number}" for number in range(4)], late, is_late=True)
    for number in range(random.choice([1, 2])):
        SimulatedReader(simulation, f"r{number}", topic, is_topic_stable=True).start()
