"""One or two runs of recover_zones let zones back and catch them up, while producers go on and zones fail again."""

from collections.abc import Callable

from penstock_core.errors import PenstockError
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.simulation.service.simulation import Simulation

_BUDGET_MS = 20_000.0
_LASTS_MS = 200_000.0


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _LASTS_MS)

    def attempt(what: str, run: Callable[[Instance], object]) -> None:
        try:
            simulation.call(run, is_read=False)
        except PenstockError as error:
            simulation.scheduler.note(what, error)

    def recover() -> None:
        attempt("not recovered", lambda instance: recover_zones(instance, _BUDGET_MS))

    def recover_each_minute() -> None:
        while simulation.scheduler.now_ms < _LASTS_MS:
            simulation.scheduler.pause(random.uniform(5_000.0, 60_000.0))
            recover()

    def move(zone: str, to: ZoneStatus) -> None:
        attempt("refused", lambda instance: move_zone_by_operator(instance, zone, to, "drill"))

    def operate() -> None:
        """Take a zone out and bring it back, now and then right before producers begin and recover_zones runs."""
        for _ in range(random.choice([1, 2, 3])):
            zone = random.choice(simulation.stores.zone_names)
            simulation.scheduler.pause(random.uniform(100.0, 30_000.0))
            move(zone, ZoneStatus.TAKEN_OUT)
            simulation.scheduler.pause(random.uniform(100.0, 10_000.0))
            is_close = random.random() < 0.7
            if is_close:
                simulation.pause_until_burst()
            while simulation.stores.zone_states.get().of(zone).status is ZoneStatus.TAKEN_OUT:
                move(zone, ZoneStatus.CATCHING_UP)
            if is_close:
                recover()

    def trouble() -> None:
        """Let a zone stop answering for a while. Prefer a zone that is not in sync."""
        for _ in range(random.choice([0, 2, 4])):
            simulation.scheduler.pause(random.uniform(1_000.0, _LASTS_MS / 5))
            states = simulation.stores.zone_states.get()
            behind = [each for each in simulation.stores.zone_names if states.of(each).status is not ZoneStatus.IN_SYNC]
            label = f"zone {random.choice(behind or simulation.stores.zone_names)}"
            if label not in simulation.storage.zone_trouble:
                simulation.storage.zone_trouble[label] = random.choice(["refuses", "hangs"])
                simulation.scheduler.pause(random.choice([random.uniform(500.0, 10_000.0), random.uniform(30e3, 90e3)]))
                simulation.storage.zone_trouble.pop(label, None)

    for number in range(random.choice([1, 2])):
        simulation.work(f"recover_zones{number}", recover_each_minute)
    simulation.work("zones back", operate)
    simulation.work("catch-up trouble", trouble)
