"""Topics keep little and for a short time; retention runs, sometimes twice at once, while settings change."""

from dataclasses import replace
from functools import partial

from penstock_broker.retain import retain
from penstock_core.errors import PenstockError
from penstock_core.limits import UNLIMITED
from tests.simulation.world import GRACE_MS, World

_LASTS_MS = 150_000.0


def install(world: World) -> None:
    random = world.scheduler.random
    world.lasts_ms = max(world.lasts_ms, _LASTS_MS)
    budget_ms = random.choice([100.0, 20_000.0, 20_000.0])

    def set_retention() -> None:
        """Below what the API allows, as topics here are small: so past it, but observed."""
        for topic in world.stores.topics.list():
            config = replace(
                topic.config,
                retention_ms=random.choice([UNLIMITED, 1_000, 20_000, 60_000]),
                retention_bytes=random.choice([UNLIMITED, 0, 500, 2_000]),
            )
            change = partial(world.stores.topics.replace, topic, replace(topic, config=config))
            world.apply("topics", "replace", change, (topic, replace(topic, config=config)))

    def operate() -> None:
        for _ in range(random.choice([1, 2, 4])):
            set_retention()
            world.scheduler.pause(random.uniform(100.0, _LASTS_MS / 2))

    def run() -> None:
        for _ in range(random.choice([3, 6])):
            world.scheduler.pause(random.choice([random.uniform(100.0, 5_000.0), random.uniform(5_000.0, 70_000.0)]))
            try:
                world.call(lambda broker: retain(broker, budget_ms=budget_ms, grace_ms=GRACE_MS), is_read=False)
            except PenstockError as error:
                world.scheduler.note("not retained", error)

    world.work("settings", operate)
    for number in range(random.choice([1, 2])):
        world.work(f"retention{number}", run)
