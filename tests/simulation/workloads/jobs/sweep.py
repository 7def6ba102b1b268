"""One or two sweeps remove objects that no ref names, in rounds of any size, while clients write and read."""

from penstock_core.errors import PenstockError
from penstock_core.limits import SWEEP_LIVE_MAX
from penstock_service.retention.sweep import sweep
from tests.simulation.service.simulation import GRACE_MS, Simulation

_LASTS_MS = 120_000.0
_BUDGET_MS = 20_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _LASTS_MS)
    live_max = random.choice([SWEEP_LIVE_MAX, SWEEP_LIVE_MAX, 5])

    def run() -> None:
        for _ in range(random.choice([2, 4])):
            if random.random() < 0.8:
                simulation.pause_until_burst()
            else:
                simulation.scheduler.pause(random.uniform(100.0, 60_000.0))
            try:
                simulation.call(
                    lambda instance: sweep(
                        instance,
                        budget_ms=_BUDGET_MS,
                        grace_ms=GRACE_MS,
                        log_start_grace_ms=GRACE_MS,
                        live_max=live_max,
                    ),
                    is_read=False,
                )
                simulation.count("sweep done")
            except PenstockError as error:
                simulation.scheduler.note("not swept", error)

    for number in range(random.choice([1, 1, 2])):
        simulation.work(f"sweep{number}", run)
