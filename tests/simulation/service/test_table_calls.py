"""Operations of the driver meet faults one by one, and observers hear of each call at its effect.

Simulated function instances: they share the stores, and remember nothing of each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, Partition, PartitionKey, SegmentId, TopicId, ZoneName
from penstock_core.log.index import HeadAppend
from penstock_service.instance.instance import Instance
from penstock_service.stores import Stores
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.faults import Fault, FaultPlan
from tests.simulation.oracle.violation import ViolationError
from tests.simulation.service import table_calls
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation
from tests.simulation.service.table_calls import TablePort
from tests.support.refs import ref_at

KEY = PartitionKey(TopicId("t1"), Partition(0))
GROUP = GroupName("g")
Told = tuple[float, str, Any]


class Run:
    """One instance that makes one call. `faults` strike its operations in turn; the later ones meet none."""

    def __init__(self, faults: Iterable[Fault | None]) -> None:
        self.simulation = Simulation(1)
        self.stores = self.simulation.stores
        self.stores.log.create_head(KEY)
        self.told: list[Told] = []
        self.ended_ms = 0.0
        self.simulation.storage.oracle.observe = lambda *_: None  # type: ignore[method-assign]
        self.simulation.storage.observers.append(self._hear)
        self._faults = iter(faults)

    def make(self, call: Callable[[Stores], object], *, lasting_rate: float = 0.0) -> object:
        """What the call returns, or its error. Everything in flight lands."""
        found: list[object] = []
        instance = SimulatedInstance(self.simulation.state, self.simulation.storage, 1)

        def run() -> None:
            try:
                found.append(call(instance.instance.stores))
            except PenstockError as error:
                found.append(error)
            except Killed:
                found.append(None)
            self.ended_ms = self.simulation.scheduler.now_ms

        self.simulation.scheduler.spawn("caller", run)
        with (
            patch.object(FaultPlan, "draw", lambda *_, **__: next(self._faults, None)),
            patch.object(table_calls, "_LASTING_RATE", lasting_rate),
        ):
            self.simulation.scheduler.run()
        return found[0]

    def _hear(self, label: str, method: str, _arguments: tuple[Any, ...], outcome: Any) -> None:
        self.told.append((self.simulation.scheduler.now_ms, f"{label}.{method}", outcome))


def append(stores: Stores) -> object:
    return stores.log.append(KEY, ref_at(1), 0)


def put_two_chunks(stores: Stores) -> None:
    stores.memberships.put_target(GROUP, 1, "t", [b"x", b"y"])


def test_call_is_told_at_its_effect_and_ends_later() -> None:
    run = Run([])
    outcome = run.make(append)
    assert isinstance(outcome, HeadAppend)
    [(told_ms, name, told)] = run.told
    assert (name, told) == ("log.append", outcome)
    assert told_ms < run.ended_ms


def test_call_is_told_as_applied_when_its_answer_is_lost() -> None:
    run = Run([Fault.LOST_REPLY])
    error = run.make(append)
    assert isinstance(error, PenstockError)
    assert error.maybe_applied
    [(_, _, told)] = run.told
    assert told.is_appended


def test_call_is_told_once_it_lands_when_it_is_late() -> None:
    run = Run([Fault.LATE])
    error = run.make(append)
    assert isinstance(error, PenstockError)
    told = [(at_ms > run.ended_ms, isinstance(each, HeadAppend)) for at_ms, _, each in run.told]
    assert told == [(False, False), (True, True)]  # the call ended without effect, and then it had one


def test_call_that_the_client_tries_again_is_applied_once() -> None:
    run = Run([Fault.REFUSED, Fault.REFUSED])
    assert isinstance(run.make(append), HeadAppend)
    assert len(run.told) == 1
    assert run.stores.log.heads([KEY])[KEY].next_offset == 1


def test_second_of_two_writes_is_lost_when_its_instance_dies_before_it() -> None:
    run = Run([None, Fault.KILLED_BEFORE])
    assert run.make(put_two_chunks) is None
    assert run.stores.memberships.get_target(GROUP, 1, "t") == [b"x"]
    assert run.told == []


def test_call_with_two_writes_is_told_at_the_second_one() -> None:
    run = Run([None, Fault.KILLED_AFTER])
    assert run.make(put_two_chunks) is None
    assert run.stores.memberships.get_target(GROUP, 1, "t") == [b"x", b"y"]
    [(_, name, told)] = run.told
    assert (name, told) == ("memberships.put_target", None)


def test_late_first_attempt_lands_after_its_repeat() -> None:
    run = Run([Fault.LATE])
    assert run.make(lambda stores: stores.log.delete_head(KEY)) is None
    assert [at_ms > run.ended_ms for at_ms, _, _ in run.told] == [False, True]


def test_read_is_told_when_it_ends() -> None:
    run = Run([Fault.LOST_REPLY])
    heads = run.make(lambda stores: stores.log.heads([KEY]))
    assert [(name, told) for _, name, told in run.told] == [("log.heads", heads)]


def test_loss_that_lasts_reaches_the_caller() -> None:
    error = Run([Fault.LOST_REQUEST]).make(lambda stores: stores.log.heads([KEY]), lasting_rate=1.0)
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.STORAGE_UNAVAILABLE


def test_request_that_dynamodb_never_takes_fails_the_run() -> None:
    run = Run([])
    with pytest.raises(ViolationError, match="never take"):
        run.make(lambda stores: stores.topics.get(TopicId("")))  # type: ignore[arg-type]


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
