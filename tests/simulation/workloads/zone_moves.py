"""An operator takes zones out of service and brings them back, while appenders move those that fail."""

from penstock_core.errors import PenstockError
from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.simulation.service.simulation import Simulation


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            simulation.scheduler.pause(random.uniform(10.0, 1_500.0 + simulation.lasts_ms / 4))
            zone = random.choice(simulation.stores.zone_names)
            to = random.choice([ZoneStatus.TAKEN_OUT, ZoneStatus.CATCHING_UP])

            def move(instance: Instance, zone: ZoneName = zone, to: ZoneStatus = to) -> None:
                move_zone_by_operator(instance, zone, to, "drill")

            try:
                simulation.call(move, is_read=False)
                simulation.count(f"zone {to.value}")
            except PenstockError as error:
                simulation.scheduler.note("refused", error)

    simulation.work("zone operator", run)
