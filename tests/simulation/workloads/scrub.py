"""The scrub reads the copies in portions and heals them, sometimes twice at once, while others write and lose them."""

from penstock_broker.scrub import scrub
from penstock_core.errors import PenstockError
from tests.simulation.world import World

_BUDGET_MS = 10_000.0


def install(world: World) -> None:
    random = world.scheduler.random
    budget_bytes = random.choice([300, 3_000, 1_000_000])

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            world.scheduler.pause(random.uniform(50.0, 1_500.0 + world.lasts_ms / 5))
            try:
                world.call(lambda broker: scrub(broker, budget_ms=_BUDGET_MS, budget_bytes=budget_bytes), is_read=False)
            except PenstockError as error:
                world.scheduler.note("not scrubbed", error)

    for number in range(random.choice([1, 2])):
        world.work(f"scrub{number}", run)
