"""What befalls the machines: functions freeze, and embedding programs sleep."""

from collections.abc import Callable

from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.timers.promote_due import promote_due
from tests.simulation.service.instance import Naps
from tests.simulation.service.simulation import GRACE_MS, Freezes, Simulation

_MINUTE_MS = 60_000.0
_HOUR_MS = 60 * _MINUTE_MS
_TIMEOUT_MS = 58_000.0
_BUDGET_MS = 20_000.0
_RETAIN_MINUTES, _SWEEP_MINUTES = 15, 60


def freezing(simulation: Simulation) -> None:
    """Instances are frozen after their answers, as Lambda freezes them, and their stragglers run on after the thaw."""
    random = simulation.scheduler.random
    simulation.freezes = Freezes(
        rate=random.choice([0.1, 0.5, 1.0]),
        duration_ms=random.choice([(500.0, 3_000.0), (2_000.0, 15_000.0), (10_000.0, 120_000.0)]),
        stop_monotonic=random.random() < 0.5,
    )


def lagging(simulation: Simulation) -> None:
    """The writes of lanes take up to 4 s: messages come while their lane is about to be freed."""
    simulation.faults.sluggish, simulation.faults.latency_ms = "put_lane", (1.0, 100.0)


def sleeping(simulation: Simulation) -> None:
    """Programs that embed the service sleep for 20 minutes to 6 hours, as laptops do, between any two storage calls.

    Each other workload may go with this one: its clients are the programs. Meanwhile the service's functions go on:
    promotions each minute, retention, and the sweep with the shortest grace. No check of a sleeper may age.
    """
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
    simulation.attempt("not run", job, timeout_ms=_TIMEOUT_MS)
