"""Acks: what each asks of the zones, what is refused when too few answer, and what is noted of those that missed."""

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.produce import produce
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.quorum import Acks
from penstock_core.ref import Ref
from tests.broker.setting import (
    Intercepted,
    another_instance,
    batch,
    entry,
    head_of,
    new_topic,
    patient_broker,
    read_all,
    send,
    zone_of,
)

NEEDED = {Acks.NONE: 1, Acks.LEADER: 1, Acks.QUORUM: 2, Acks.ALL: 3}
OUTAGES = [down for count in range(4) for down in itertools.combinations(range(3), count)]


def _noting(broker: Broker) -> tuple[Broker, list[tuple[Ref, int]]]:
    noted: list[tuple[Ref, int]] = []

    def append(original: Any, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        noted.append((ref, unconfirmed_zones))
        head: Head = original(key, ref, unconfirmed_zones)
        return head

    return replace(broker, log=Intercepted(broker.log, append=append)), noted


@pytest.mark.parametrize("down", OUTAGES)
@pytest.mark.parametrize("acks", list(Acks))
def test_append_needs_as_many_zones_as_its_acks_when_zones_are_down(acks: Acks, down: tuple[int, ...]) -> None:
    broker, noted = _noting(patient_broker())
    topic = new_topic(broker)
    for index in down:
        zone_of(broker, index).is_down = True
    up = [index for index in range(3) if index not in down]
    if len(up) >= NEEDED[acks]:
        assert send(broker, topic, "x", acks=acks) == Appended(base_offset=0, next_offset=1)
        [(ref, unconfirmed)] = noted
        assert ref.zones == sum(1 << index for index in up)
        assert unconfirmed == sum(1 << index for index in down)
        assert all(ref.segment_id in zone_of(broker, index).segments for index in up)
        assert read_all(broker, topic) == [(0, "x")]
    else:
        with pytest.raises(PenstockError) as caught:
            produce(broker, [entry(topic, 0, batch("x"))], acks)
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.NOT_ENOUGH_ZONES, False)
        assert f"{len(up)} of 3 zones" in caught.value.message
        assert all(f"zone {'abc'[index]}" in caught.value.message for index in down)
        assert noted == []
        for index in down:
            zone_of(broker, index).is_down = False
        assert read_all(broker, topic) == []


@pytest.mark.parametrize(("zones", "may_be_down"), [("a", 0), ("ab", 0), ("abcd", 1), ("abcde", 2)])
def test_append_by_quorum_bears_a_minority_when_zones_are_not_three(zones: str, may_be_down: int) -> None:
    broker = patient_broker(zones=zones)
    topic = new_topic(broker)
    for index in range(may_be_down):
        zone_of(broker, index).is_down = True
    assert send(broker, topic, "x").next_offset == 1
    zone_of(broker, may_be_down).is_down = True
    with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
        send(broker, topic, "y")


class _Hanging:
    """Hooks for a zone that takes calls and answers none until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.taken = 0

    def put(self, original: Any, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.taken += 1
        self.answer.wait()
        original(segment_id, body, crc32c)


@pytest.mark.parametrize("hangs", range(3))
def test_append_by_quorum_is_not_held_up_when_a_zone_hangs(hangs: int) -> None:
    """Far more appends than threads: nobody may end up waiting behind the puts that hang."""
    hanging = _Hanging()
    broker, noted = _noting(replace(patient_broker(), straggler_grace_ms=0))
    zones: list[Any] = list(broker.zones)
    zones[hangs] = Intercepted(zones[hangs], put=hanging.put)
    broker = replace(broker, zones=zones)
    topic = new_topic(broker)
    try:
        for number in range(100):
            assert send(broker, topic, str(number)).base_offset == number
    finally:
        hanging.answer.set()
    assert 0 < hanging.taken < 100
    assert {(ref.zones, unconfirmed) for ref, unconfirmed in noted} == {(0b111 ^ 1 << hangs, 1 << hangs)}
    assert read_all(broker, topic) == [(number, str(number)) for number in range(100)]


def test_append_by_all_waits_for_the_last_zone() -> None:
    hanging = _Hanging()
    broker = replace(patient_broker(), straggler_grace_ms=0)
    broker = replace(broker, zones=[*broker.zones[:2], Intercepted(broker.zones[2], put=hanging.put)])
    topic = new_topic(broker)
    results: list[Appended] = []
    waiting = threading.Thread(target=lambda: results.append(send(broker, topic, "x", acks=Acks.ALL)))
    waiting.start()
    send(another_instance(broker, zones=broker.zones[:2]), topic, "meanwhile")
    assert results == []
    assert head_of(broker, topic).next_offset == 1
    hanging.answer.set()
    waiting.join(timeout=30)
    assert results == [Appended(base_offset=1, next_offset=2)]
    assert head_of(broker, topic).tail[1].zones == 0b111


def test_append_refuses_when_the_zones_that_are_left_can_no_longer_be_enough() -> None:
    """Two of three refuse: waiting for the one that hangs could not help, so nobody does."""
    hanging = _Hanging()
    broker = replace(patient_broker(), straggler_grace_ms=0)
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = True
    broker = replace(broker, zones=[*broker.zones[:2], Intercepted(broker.zones[2], put=hanging.put)])
    topic = new_topic(broker)
    try:
        with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
            send(broker, topic, "x")
    finally:
        hanging.answer.set()
    assert head_of(broker, topic).next_offset == 0
