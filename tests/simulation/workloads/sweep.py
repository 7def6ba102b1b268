"""Objects that nothing names are swept while others write and read: by one sweep or two, in rounds of any size."""

from penstock_broker.sweep import LIVE_MAX, sweep
from penstock_core.errors import PenstockError
from tests.simulation.instance import SEGMENT_PREFIX_FIRST
from tests.simulation.world import GRACE_MS, World

_LASTS_MS = 120_000.0
_BUDGET_MS = 20_000.0


def install(world: World) -> None:
    random = world.scheduler.random
    world.lasts_ms = max(world.lasts_ms, _LASTS_MS)
    live_max = random.choice([LIVE_MAX, LIVE_MAX, 5])

    def run() -> None:
        for _ in range(random.choice([2, 4])):
            if random.random() < 0.8:
                world.pause_until_burst()
            else:
                world.scheduler.pause(random.uniform(100.0, 60_000.0))
            if world.stores.cursors.get("sweep") is None:  # no segment here has a prefix below
                world.stores.cursors.put("sweep", str(SEGMENT_PREFIX_FIRST))
            try:
                world.call(
                    lambda broker: sweep(
                        broker,
                        budget_ms=_BUDGET_MS,
                        grace_ms=GRACE_MS,
                        log_start_grace_ms=GRACE_MS,
                        live_max=live_max,
                    ),
                    is_read=False,
                )
                world.count("sweep done")
            except PenstockError as error:
                world.scheduler.note("not swept", error)

    for number in range(random.choice([1, 1, 2])):
        world.work(f"sweep{number}", run)
