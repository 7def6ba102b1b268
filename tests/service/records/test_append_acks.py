"""Acks: each kind waits for its zones, refuses when too few answer, and notes the zones that missed the segment."""

import itertools
import threading
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import produce
from tests.support.deadlines import DEADLINE_S
from tests.support.service import (
    Intercepted,
    another_instance,
    appended,
    batch,
    entry,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
    with_stores,
    with_tuning,
    zone_of,
)

NEEDED = {Acks.NONE: 1, Acks.ONE: 1, Acks.QUORUM: 2, Acks.ALL: 3}
OUTAGES = [down for count in range(4) for down in itertools.combinations(range(3), count)]


def _noting(instance: Instance) -> tuple[Instance, list[tuple[Ref, int]]]:
    noted: list[tuple[Ref, int]] = []

    def append(original: Any, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        noted.append((ref, unconfirmed_zones))
        head: Head = original(key, ref, unconfirmed_zones)
        return head

    return with_stores(instance, log=Intercepted(instance.stores.log, append=append)), noted


@pytest.mark.parametrize("down", OUTAGES)
@pytest.mark.parametrize("acks", list(Acks))
def test_append_needs_as_many_zones_as_its_acks_when_zones_are_down(acks: Acks, down: tuple[int, ...]) -> None:
    instance, noted = _noting(patient_instance())
    topic = new_topic(instance)
    for index in down:
        zone_of(instance, index).is_down = True
    up = [index for index in range(3) if index not in down]
    if len(up) >= NEEDED[acks]:
        assert send(instance, topic, "x", acks=acks) == appended(0, 1)
        [(ref, unconfirmed)] = noted
        assert ref.zones == sum(1 << index for index in up)
        assert unconfirmed == sum(1 << index for index in down)
        assert all(ref.segment_id in zone_of(instance, index).segments for index in up)
        assert read_all(instance, topic) == [(0, "x")]
    else:
        with pytest.raises(PenstockError) as caught:
            produce(instance, [entry(topic, 0, batch("x"))], acks)
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.NOT_ENOUGH_ZONES, False)
        assert f"{len(up)} of 3 zones" in caught.value.message
        assert all(f"zone {'abc'[index]}" in caught.value.message for index in down)
        assert noted == []
        for index in down:
            zone_of(instance, index).is_down = False
        assert read_all(instance, topic) == []


@pytest.mark.parametrize(("zones", "may_be_down"), [("a", 0), ("ab", 0), ("abcd", 1), ("abcde", 2)])
def test_append_by_quorum_bears_a_minority_when_zones_are_not_three(zones: str, may_be_down: int) -> None:
    instance = patient_instance(zones=zones)
    topic = new_topic(instance)
    for index in range(may_be_down):
        zone_of(instance, index).is_down = True
    assert send(instance, topic, "x").next_offset == 1
    zone_of(instance, may_be_down).is_down = True
    with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
        send(instance, topic, "y")


class _Hanging:
    """Hooks for a zone that takes calls and answers none of them until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.taken = 0

    def put(self, original: Any, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.taken += 1
        self.answer.wait()
        original(segment_id, body, crc32c)


@pytest.mark.parametrize("hangs", range(3))
def test_append_by_quorum_is_not_held_up_when_a_zone_hangs(hangs: int) -> None:
    """There are far more appends than threads. No append may wait behind the puts that hang."""
    hanging = _Hanging()
    instance, noted = _noting(with_tuning(patient_instance(), straggler_grace_ms=0))
    zones: list[Any] = list(instance.stores.zones)
    zones[hangs] = Intercepted(zones[hangs], put=hanging.put)
    instance = with_stores(instance, zones=zones)
    topic = new_topic(instance)
    try:
        for number in range(100):
            assert send(instance, topic, str(number)).base_offset == number
    finally:
        hanging.answer.set()
    assert 0 < hanging.taken < 100
    assert {(ref.zones, unconfirmed) for ref, unconfirmed in noted} == {(0b111 ^ 1 << hangs, 1 << hangs)}
    assert read_all(instance, topic) == [(number, str(number)) for number in range(100)]


def test_append_by_all_waits_for_the_last_zone() -> None:
    hanging = _Hanging()
    instance = with_tuning(patient_instance(), straggler_grace_ms=0)
    instance = with_stores(
        instance, zones=[*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], put=hanging.put)]
    )
    topic = new_topic(instance)
    results: list[AppendedRange] = []
    waiting = threading.Thread(target=lambda: results.append(send(instance, topic, "x", acks=Acks.ALL)))
    waiting.start()
    try:
        send(another_instance(instance, zones=instance.stores.zones[:2]), topic, "meanwhile")
        assert results == []
        assert head_of(instance, topic).next_offset == 1
    finally:
        hanging.answer.set()
        waiting.join(DEADLINE_S)
    assert results == [appended(1, 2)]
    assert head_of(instance, topic).tail[1].zones == 0b111


def test_append_refuses_when_the_zones_that_are_left_can_no_longer_be_enough() -> None:
    """Two of three zones refuse. The put that hangs cannot make a quorum, so the append does not wait for it."""
    hanging = _Hanging()
    instance = with_tuning(patient_instance(), straggler_grace_ms=0)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    instance = with_stores(
        instance, zones=[*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], put=hanging.put)]
    )
    topic = new_topic(instance)
    try:
        with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
            send(instance, topic, "x")
    finally:
        hanging.answer.set()
    assert head_of(instance, topic).next_offset == 0
