"""Copies are made again and marked, while clients write and read, heads roll, and copies get lost."""

from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.log.ref import LocatedRef
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from tests.simulation.service.simulation import Simulation

_AT_ONCE = 8


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0 + simulation.lasts_ms / 5))
            refs = simulation.oracle.log.all_refs()
            for key, located in random.sample(refs, min(len(refs), _AT_ONCE)):
                try:
                    simulation.call(partial(repair, key=key, located=located), is_read=False)
                except PenstockError as error:
                    simulation.scheduler.note("not repaired", error)

    simulation.work("repairer", run)


def repair(instance: Instance, key: PartitionKey, located: LocatedRef) -> None:
    """Run the three steps of docs/adr/0004: they put a good copy into every zone, and its bit into the ref."""
    ensured = ensure_copies(
        instance.stores.zones, instance.executor, located.ref.segment_id, instance.stores.regular_zones
    )
    instance.stores.log.mark_stored(key, {located: ensured.good})
