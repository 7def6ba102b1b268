"""One or two scrubs read the copies in portions and heal them, while clients write and copies get lost."""

from penstock_core.errors import PenstockError
from penstock_service.repair.scrub import scrub
from tests.simulation.service.simulation import Simulation

_BUDGET_MS = 10_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    budget_bytes = random.choice([300, 3_000, 1_000_000])

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0 + simulation.lasts_ms / 5))
            try:
                simulation.call(
                    lambda instance: scrub(instance, budget_ms=_BUDGET_MS, budget_bytes=budget_bytes), is_read=False
                )
            except PenstockError as error:
                simulation.scheduler.note("not scrubbed", error)

    for number in range(random.choice([1, 2])):
        simulation.work(f"scrub{number}", run)
