"""An operator raises log starts while clients write and read."""

from tests.simulation.clients.admin import SimulatedAdmin
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    admin = SimulatedAdmin(simulation, "truncator")

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            simulation.scheduler.pause(random.uniform(10.0, 800.0 + simulation.lasts_ms / 5))
            for topic in list(simulation.topics):
                admin.truncate(topic, random.choice([0.0, 0.3, 0.7, 1.0]))

    simulation.work("truncator", run)
