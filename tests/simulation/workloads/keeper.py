"""The keeper runs each minute, lets zones back and catches them up, while producers go on for long enough to see it."""

from penstock_broker.keep_zones import keep_zones
from penstock_core.errors import PenstockError
from tests.simulation.world import World

_BUDGET_MS = 20_000.0


def install(world: World) -> None:
    random = world.scheduler.random

    def run() -> None:
        for _ in range(random.choice([2, 4, 6])):
            world.scheduler.pause(random.uniform(1_000.0, 60_000.0))
            try:
                world.call(lambda broker: keep_zones(broker, _BUDGET_MS), is_read=False)
            except PenstockError as error:
                world.scheduler.note("not kept", error)

    world.work("keeper", run)
