"""Copies are made again, and marked, while others write, read, roll and lose them."""

from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_core.errors import PenstockError
from penstock_core.keys import PartitionKey
from penstock_core.ref import LocatedRef
from tests.simulation.world import World

_AT_ONCE = 8


def install(world: World) -> None:
    random = world.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            world.scheduler.pause(random.uniform(50.0, 1_500.0 + world.lasts_ms / 5))
            refs = world.truth.all_refs()
            for key, located in random.sample(refs, min(len(refs), _AT_ONCE)):
                try:
                    world.call(lambda broker, key=key, located=located: repair(broker, key, located), is_read=False)
                except PenstockError as error:
                    world.scheduler.note("not repaired", error)

    world.work("repairer", run)


def repair(broker: Broker, key: PartitionKey, located: LocatedRef) -> None:
    """The three steps of docs/adr/0004: a good copy in every zone, and its bit in the ref."""
    ensured = ensure_copies(broker, located.ref.segment_id, (1 << len(broker.zones)) - 1)
    broker.log.mark_stored(key, located, ensured.good)
