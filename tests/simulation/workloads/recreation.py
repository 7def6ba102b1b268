"""A topic is written, read, deleted and created again, with other numbers of partitions, by one or two operators."""

from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.clients.producers import ProducerChoices, start_producers
from tests.simulation.clients.reader import SimulatedReader
from tests.simulation.service.simulation import Simulation

TOPIC = "fleeting"


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.topic(TOPIC, partitions=2)
    simulation.claims.topic_changes[TOPIC] = []
    start_producers(simulation, TOPIC, ["f0", "f1"], ProducerChoices(records=[20, 40], pace_ms=[20.0, 100.0]))
    SimulatedReader(simulation, "fr", TOPIC, is_topic_stable=False).start()
    admin = SimulatedAdmin(simulation, "creator")

    def recreate() -> None:
        for _ in range(random.choice([1, 3])):
            simulation.scheduler.pause(random.uniform(50.0, 1_000.0 + simulation.lasts_ms / 5))
            admin.delete(TOPIC)
            simulation.scheduler.pause(random.choice([0.0, 100.0]))
            admin.create(TOPIC, random.choice([1, 2, 3]))

    def widen() -> None:
        for _ in range(random.choice([0, 2, 4])):
            simulation.scheduler.pause(random.uniform(50.0, 800.0))
            SimulatedAdmin(simulation, "widener").add_partitions(TOPIC, random.choice([2, 3, 4]))

    simulation.work("creator", recreate)
    simulation.work("widener", widen)
