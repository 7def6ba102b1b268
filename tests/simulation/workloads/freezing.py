"""Instances are frozen after their answers, as Lambda freezes them, and their stragglers run on after the thaw."""

from tests.simulation.service.simulation import Freezes, Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.freezes = Freezes(
        rate=random.choice([0.1, 0.5, 1.0]),
        duration_ms=random.choice([(500.0, 3_000.0), (2_000.0, 15_000.0), (10_000.0, 120_000.0)]),
        stop_monotonic=random.random() < 0.5,
    )
