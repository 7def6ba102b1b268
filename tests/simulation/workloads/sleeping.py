"""Programs that embed the service sleep for 20 minutes to 6 hours, as laptops do, between any two storage calls.

Each other workload may go with this one: its clients are the programs. Meanwhile the functions of the service go on:
promotions each minute, retention, and the sweep with the shortest grace. No check of a sleeper may age.
"""

from collections.abc import Callable

from penstock_core.errors import PenstockError
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.timers.promote_due import promote_due
from tests.simulation.service.instance import Naps
from tests.simulation.service.simulation import GRACE_MS, Simulation

_MINUTE_MS = 60_000.0
_HOUR_MS = 60 * _MINUTE_MS
_TIMEOUT_MS = 58_000.0
_BUDGET_MS = 20_000.0
_RETAIN_MINUTES, _SWEEP_MINUTES = 15, 60


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.naps = Naps(
        rate=random.choice([0.002, 0.01, 0.05]),
        duration_ms=random.choice([(_HOUR_MS / 3, _HOUR_MS), (_HOUR_MS, 6 * _HOUR_MS)]),
        stop_monotonic=random.random() < 0.5,
        left=random.choice([1, 2, 4]),
    )
    simulation.scheduler.spawn("functions", lambda: _go_on(simulation))


def _go_on(simulation: Simulation) -> None:
    """Run the scheduled functions while programs work or sleep."""
    minutes = 0
    while not simulation.is_over:
        simulation.scheduler.pause(_MINUTE_MS)
        minutes += 1
        _run(simulation, lambda instance: promote_due(instance, budget_ms=_BUDGET_MS))
        if minutes % _RETAIN_MINUTES == 0:
            _run(simulation, lambda instance: retain(instance, budget_ms=_BUDGET_MS, grace_ms=GRACE_MS))
        if minutes % _SWEEP_MINUTES == 0:
            _run(
                simulation,
                lambda instance: sweep(instance, budget_ms=_BUDGET_MS, grace_ms=GRACE_MS, log_start_grace_ms=GRACE_MS),
            )


def _run(simulation: Simulation, job: Callable[[Instance], object]) -> None:
    try:
        simulation.call(job, is_read=False, timeout_ms=_TIMEOUT_MS)
    except PenstockError as error:
        simulation.scheduler.note("not run", error)
