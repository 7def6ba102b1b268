"""An operator raises log starts while others write and read."""

from tests.simulation.admin import SimulatedAdmin
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random
    admin = SimulatedAdmin(world, "truncator")

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            world.scheduler.pause(random.uniform(10.0, 800.0 + world.lasts_ms / 5))
            for topic in list(world.topics):
                admin.truncate(topic, random.choice([0.0, 0.3, 0.7, 1.0]))

    world.work("truncator", run)
