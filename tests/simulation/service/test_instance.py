"""Simulated function instances: they share the stores, and remember nothing of each other."""

from dataclasses import fields
from typing import Any

from penstock_core.ids import SegmentId, ZoneName
from penstock_service.instance.instance import Instance
from penstock_service.stores import Stores
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation
from tests.simulation.service.table_calls import TablePort

SHARED = {"stores", "tuning"}  # each store below is compared; the tuning is a setting
SEGMENT = SegmentId(bytes(16))


def two_instances() -> tuple[Instance, Instance]:
    simulation = Simulation(1)
    first, second = (SimulatedInstance(simulation.state, simulation.storage, number) for number in (1, 2))
    return first.instance, second.instance


def test_instances_share_no_memory_when_both_belong_to_one_simulation() -> None:
    first, second = two_instances()
    remembered = [each.name for each in fields(Instance) if getattr(first, each.name) is not None]
    shared = {name for name in remembered if getattr(first, name) is getattr(second, name)}
    assert shared <= SHARED


def test_instances_share_every_store_when_both_belong_to_one_simulation() -> None:
    first, second = two_instances()
    for each in fields(Stores):
        if each.name not in ("zones", "fallback_zones", "small"):
            port, other = getattr(first.stores, each.name), getattr(second.stores, each.name)
            assert port is not other
            assert _below(port) is _below(other)
    assert [store.zone for store in first.stores.zones] == [store.zone for store in second.stores.zones]


def test_instance_reports_a_copy_again_when_another_instance_has_just_reported_it() -> None:
    first, second = two_instances()
    assert first.repair_throttle.take(SEGMENT, ZoneName("a"))
    assert not first.repair_throttle.take(SEGMENT, ZoneName("a"))
    assert second.repair_throttle.take(SEGMENT, ZoneName("a"))


def _below(port: Any) -> Any:
    """The store of all instances, or the tables of all under a table store of this one."""
    below = vars(port)["_port"]
    return below._client._driver._tables if isinstance(port, TablePort) else below
