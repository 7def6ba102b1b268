"""Several producers make many small appends to one partition: tails roll under contention, readers read old offsets."""

from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    topic = simulation.topic("hot", partitions=1)
    simulation.faults.sluggish = random.choice(
        ["put_page", "shorten_tail", "pages", "heads" if simulation.lasts_ms else simulation.faults.sluggish]
    )
    acks = simulation.acks_allowed[0]
    names = [f"h{number}" for number in range(random.choice([4, 8, 16]))]
    choices = ProducerChoices(records=[10, 20], acks=acks, pace_ms=[1.0, 10.0], max_in_flight=[1], is_batching=False)
    start_producers(simulation, topic, names, choices)
    if simulation.lasts_ms:
        late = ProducerChoices(records=[20], acks=acks, pace_ms=[10.0], is_batching=False)
        start_producers(simulation, topic, [f"late{number}" for number in range(3)], late, is_late=True)
    for number in range(2):
        SimulatedReader(simulation, f"hr{number}", topic, is_topic_stable=True).start()
