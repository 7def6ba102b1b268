"""Topics keep little and for a short time; retention runs, sometimes twice at once, while settings change."""

from dataclasses import replace
from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.limits import UNLIMITED
from penstock_service.retention.retain import retain
from tests.simulation.service.simulation import GRACE_MS, Simulation

_LASTS_MS = 150_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _LASTS_MS)
    budget_ms = random.choice([100.0, 20_000.0, 20_000.0])

    def set_retention() -> None:
        """Set values below the bounds of the API, as topics are small. So go past it, but let the oracle observe."""
        for topic in simulation.stores.topics.list():
            config = replace(
                topic.config,
                retention_ms=random.choice([UNLIMITED, 1_000, 20_000, 60_000]),
                retention_bytes=random.choice([UNLIMITED, 0, 500, 2_000]),
            )
            change = partial(simulation.stores.topics.replace, topic, replace(topic, config=config))
            simulation.storage.apply("topics", "replace", change, (topic, replace(topic, config=config)))

    def operate() -> None:
        for _ in range(random.choice([1, 2, 4])):
            set_retention()
            simulation.scheduler.pause(random.uniform(100.0, _LASTS_MS / 2))

    def run() -> None:
        for _ in range(random.choice([3, 6])):
            simulation.scheduler.pause(
                random.choice([random.uniform(100.0, 5_000.0), random.uniform(5_000.0, 70_000.0)])
            )
            try:
                simulation.call(
                    lambda instance: retain(instance, budget_ms=budget_ms, grace_ms=GRACE_MS), is_read=False
                )
            except PenstockError as error:
                simulation.scheduler.note("not retained", error)

    simulation.work("settings", operate)
    for number in range(random.choice([1, 2])):
        simulation.work(f"retention{number}", run)
