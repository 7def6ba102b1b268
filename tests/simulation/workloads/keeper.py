"""The keeper lets zones back and catches them up, one or two at once, while producers go on and zones fail again."""

from collections.abc import Callable

from penstock_broker.broker import Broker
from penstock_broker.keep_zones import keep_zones
from penstock_broker.move_zone import move_zone_by_operator
from penstock_core.errors import PenstockError
from penstock_core.zone_state import ZoneStatus
from tests.simulation.world import World

_BUDGET_MS = 20_000.0
_LASTS_MS = 200_000.0


def install(world: World) -> None:
    random = world.scheduler.random
    world.lasts_ms = max(world.lasts_ms, _LASTS_MS)

    def attempt(what: str, run: Callable[[Broker], object]) -> None:
        try:
            world.call(run, is_read=False)
        except PenstockError as error:
            world.scheduler.note(what, error)

    def keep() -> None:
        attempt("not kept", lambda broker: keep_zones(broker, _BUDGET_MS))

    def keep_each_minute() -> None:
        while world.scheduler.now_ms < _LASTS_MS:
            world.scheduler.pause(random.uniform(5_000.0, 60_000.0))
            keep()

    def move(zone: str, to: ZoneStatus) -> None:
        attempt("refused", lambda broker: move_zone_by_operator(broker, zone, to, "drill"))

    def operate() -> None:
        """Takes a zone out and brings it back, now and then right before producers begin and the keeper runs."""
        for _ in range(random.choice([1, 2, 3])):
            zone = random.choice(world.stores.zone_names)
            world.scheduler.pause(random.uniform(100.0, 30_000.0))
            move(zone, ZoneStatus.TAKEN_OUT)
            world.scheduler.pause(random.uniform(100.0, 10_000.0))
            is_close = random.random() < 0.7
            if is_close:
                world.pause_until_burst()
            while world.stores.zone_states.get().of(zone).status is ZoneStatus.TAKEN_OUT:
                move(zone, ZoneStatus.CATCHING_UP)
            if is_close:
                keep()

    def trouble() -> None:
        """A zone, one that is not in sync if there is one, stops answering for a while."""
        for _ in range(random.choice([0, 2, 4])):
            world.scheduler.pause(random.uniform(1_000.0, _LASTS_MS / 5))
            states = world.stores.zone_states.get()
            behind = [each for each in world.stores.zone_names if states.of(each).status is not ZoneStatus.IN_SYNC]
            label = f"zone {random.choice(behind or world.stores.zone_names)}"
            if label not in world.zone_trouble:
                world.zone_trouble[label] = random.choice(["refuses", "hangs"])
                world.scheduler.pause(random.choice([random.uniform(500.0, 10_000.0), random.uniform(30e3, 90e3)]))
                world.zone_trouble.pop(label, None)

    for number in range(random.choice([1, 2])):
        world.work(f"keeper{number}", keep_each_minute)
    world.work("zones back", operate)
    world.work("catch-up trouble", trouble)
