"""An error without `maybe_applied` tells that nothing was changed.

Each storage call of each route is refused once. Then each write's answer is lost, and each call after it is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from penstock_core.acls.rule import Kind, Operation, Right
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NoAnswerError
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.system import SequentialExecutor
from penstock_service.adapters.tables.tables import InterposedTables, Tables
from penstock_service.instance.instance import Instance
from tests.handlers.route_samples import FUNCTION, SAMPLES, Sample, World, denying, make_world
from tests.handlers.service import Service
from tests.support.service import SeededEntropy, SteppedClock, batch
from tests.support.tables import Items, copy_stored, items_of

_PARTITIONS = 3
_WRITES = {"put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items"}
CHANGES = [
    each
    for each in SAMPLES
    if not each.route.startswith("GET ") and each.note != "dry run" and not each.route.endswith("/check")
]


class Refusing:
    """Tables whose call number `index` since `begin` is throttled, as often as the client repeats it.

    With `lost`, the write of this number is applied, and its answer is lost once. `index` counts the calls after that.
    """

    def __init__(self, clock: SteppedClock) -> None:
        self.tables = Tables(clock.now_ms)
        self.driver = InterposedTables(self.tables, self._interpose)
        self.at_loss: Items = {}
        self._index: int | None = None
        self._writes_left: int | None = None  # before the one whose answer is lost; None: it was
        self._count = 0
        self._last: tuple[str, Mapping[str, Any]] | None = None
        self._lost: tuple[str, Mapping[str, Any]] | None = None

    def begin(self, index: int, lost: int | None = None) -> None:
        self._index, self._writes_left, self._count, self._last = index, lost, 0, None

    @property
    def was_reached(self) -> bool:
        return self._index is not None and self._count > self._index

    @property
    def has_lost(self) -> bool:
        return self._lost is not None

    def _interpose(self, operation: str, arguments: Mapping[str, Any], apply: Callable[[], Any]) -> Any:
        call = (operation, arguments)
        if self._writes_left is not None:
            answer = apply()
            if operation in _WRITES:
                self._writes_left -= 1
                if self._writes_left < 0:
                    self._lost, self._writes_left, self.at_loss = call, None, effects_of(self.tables)
                    raise NoAnswerError("lost")
            return answer
        if call == self._lost:  # the client's repeat
            return apply()
        if call != self._last:  # which was refused: a client in one thread repeats it before all else
            self._count += 1
        if self._index is None or self._count != self._index + 1:
            self._last = None
            return apply()
        self._last = call
        raise AnsweredError("ThrottlingException", "too fast")


def _empty(seed: int = 0) -> tuple[Instance, Refusing]:
    clock = SteppedClock()
    refusing = Refusing(clock)
    entropy = SeededEntropy(seed)
    made = memory_instance(tables=refusing.driver, clock=clock, entropy=entropy, executor=SequentialExecutor())
    return made, refusing


@cache
def wide_world() -> World:
    """The world of the samples, with more partitions: groups have been at each, and a worker holds locks in two."""
    opened = Service(_empty()[0])
    found = make_world(opened)
    for topic in ("orders", "shared", "out", "dead"):
        assert opened.call("PATCH", f"/v1/topics/{topic}", {"partitions": _PARTITIONS}).status == 200
    places = [{"topic": "orders", "partition": number, "offset": 0} for number in range(1, _PARTITIONS)]
    assert opened.call("POST", "/v1/groups/billing/offsets", {"offsets": places}).status == 200
    opened.produce(*(("shared", number, batch("wide")) for number in range(1, _PARTITIONS)))
    side = {"topics": ["orders"], "target": FUNCTION, "mode": "parallel"}
    assert opened.call("PUT", "/v1/subscriptions/side", side).status == 200
    origin = [["penstock.dead-letter.topic", "orders"], ["penstock.dead-letter.partition", "0"]]
    opened.send(*({"value": "letter", "headers": origin, "partition": n} for n in range(_PARTITIONS)), topic="dead")
    answer = opened.call("POST", "/v1/share-groups/workers/records", {"max_records": 3})
    for record in answer.json["records"]:
        found.facts[f"lock{record['partition']}"] = record["lock_id"]
    return found


def _accepted(facts: Mapping[str, str]) -> dict[str, Any]:
    locks = {name.removeprefix("lock"): lock for name, lock in facts.items() if name[4:].isdecimal()}
    assert len(locks) > 1
    return {
        "acknowledge": [
            {"topic": "shared", "partition": int(number), "lock_id": lock, "type": "accept"}
            for number, lock in locks.items()
        ]
    }


CHANGES += [
    replace(each, body=_accepted, note="of two partitions")
    for each in SAMPLES
    if each.route.endswith(("/acquire", "/acknowledge"))
]
CHANGES += [
    replace(each, path={"name": "side"}, note=f"{each.note} of a parallel one")
    for each in CHANGES
    if "subscription" in each.route and each.path == {"name": "packing"}
]
_PARALLEL_TOO = tuple(Right(operation=each, kind=Kind.SUBSCRIPTION, name="side") for each in Operation)


def _is_effect(place: tuple[str, str, str]) -> bool:
    """Whether a caller may see the item. A creation that fails leaves notes, claims, and heads of no topic."""
    table, key, name = place
    if table == "topics":
        return key not in ("#audit", "#deleted")
    hidden = ("#bucket#", "#claims#", "#orphaned_states", "#groups", "push#")
    return not key.startswith(hidden) and not name.startswith("#redrive.")


def effects_of(tables: Tables) -> Items:
    """All items that a caller may see."""
    return {place: item for place, item in items_of(tables).items() if _is_effect(place)}


def _changed(before: Items, after: Items) -> set[tuple[str, str, str]]:
    """The items that differ, without heads and states that are made when they are first used."""
    changed = {place for place in before.keys() | after.keys() if before.get(place) != after.get(place)}
    return {place for place in changed if place in before or place[2] not in ("head", "state")}


def _ready(sample: Sample) -> tuple[World, Refusing]:
    made = wide_world()
    instance, refusing = _empty(1)
    copy_stored(made.instance, instance)
    prepared = World(denying(instance), made.facts)
    prepared.grant(*(each.right for each in sample.needed), *_PARALLEL_TOO)
    return prepared, refusing


@pytest.mark.parametrize("sample", CHANGES, ids=lambda each: each.name)
def test_error_that_is_sure_changed_nothing(sample: Sample) -> None:
    index = 0
    while True:
        prepared, refusing = _ready(sample)
        before = effects_of(refusing.tables)
        refusing.begin(index)
        answer = prepared.call(sample)
        if not refusing.was_reached:
            break
        if answer.status >= 400 and not answer.error["maybe_applied"]:
            assert _changed(before, effects_of(refusing.tables)) == set(), index
        index += 1
    assert index, "the route calls no storage"


@pytest.mark.parametrize("sample", CHANGES, ids=lambda each: each.name)
def test_error_that_is_sure_changed_nothing_when_the_answer_of_a_write_was_lost(sample: Sample) -> None:
    """A repeat that finds its item deleted tells so (404): what is not there has taken all changes with it."""
    lost, index = 0, 0
    while True:
        prepared, refusing = _ready(sample)
        before = effects_of(refusing.tables)
        refusing.begin(index, lost)
        answer = prepared.call(sample)
        if not refusing.has_lost:
            break
        if answer.status >= 400 and answer.status != 404 and not answer.error["maybe_applied"]:
            assert _changed(before, effects_of(refusing.tables)) == set(), (lost, index)
        # A write that changes nothing a caller sees needs no refusals behind it: the test above has them.
        if refusing.was_reached and _changed(before, refusing.at_loss):
            index += 1
        else:
            lost, index = lost + 1, 0
    assert lost, "the route writes nothing"
