"""Several producers make many small appends to one partition: tails roll under contention, readers read old offsets."""

from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("hot", partitions=1)
    simulation.faults.sluggish = random.choice(
        ["put_page", "shorten_tail", "pages", "heads" if simulation.lasts_ms else simulation.faults.sluggish]
    )
    for number in range(random.choice([4, 8, 16])):
        SimulatedProducer(
            simulation,
            f"h{number}",
            topic,
            records=random.choice([10, 20]),
            acks=simulation.acks_allowed[0],
            pace_ms=random.choice([1.0, 10.0]),
            max_in_flight=1,
            is_batching=False,
        ).start()
    for number in range(3 if simulation.lasts_ms else 0):
        SimulatedProducer(
            simulation,
            f"late{number}",
            topic,
            records=20,
            acks=simulation.acks_allowed[0],
            pace_ms=10.0,
            is_batching=False,
        ).start(delay_ms=simulation.later())
    for number in range(2):
        SimulatedReader(simulation, f"hr{number}", topic, is_topic_stable=True).start()
