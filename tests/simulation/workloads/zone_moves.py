"""An operator takes zones out of service and brings them back, while appenders move those that fail."""

from penstock_broker.broker import Broker
from penstock_broker.move_zone import move_zone_by_operator
from penstock_core.errors import PenstockError
from penstock_core.ids import ZoneName
from penstock_core.zone_state import ZoneStatus
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            world.scheduler.pause(random.uniform(10.0, 1_500.0 + world.lasts_ms / 4))
            zone = random.choice(world.stores.zone_names)
            to = random.choice([ZoneStatus.TAKEN_OUT, ZoneStatus.CATCHING_UP])

            def move(broker: Broker, zone: ZoneName = zone, to: ZoneStatus = to) -> None:
                move_zone_by_operator(broker, zone, to, "drill")

            try:
                world.call(move, is_read=False)
                world.count(f"zone {to.value}")
            except PenstockError as error:
                world.scheduler.note("refused", error)

    world.work("zone operator", run)
