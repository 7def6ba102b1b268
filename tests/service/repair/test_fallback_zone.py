"""The profile `express2`: appends put to the fallback zone only where one of the other two fails."""

from collections import Counter

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.zones.zone_state import BARRIER_MS, Acks, ZoneStatus
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.repair.scrub import scrub
from penstock_service.segments.move_zone import list_zones, move_zone_by_operator
from tests.support.refusals import refused
from tests.support.service import (
    SteppedClock,
    counted_instance,
    key_of,
    new_topic,
    read_all,
    refs_of,
    send,
    with_tuning,
    zone_of,
)

A, B, C = 0, 1, 2


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    made = memory_instance(zones=("a", "b", "c"), fallback_zones=("c",), clock=clock)
    return with_tuning(made, straggler_grace_ms=60_000, put_timeout_ms=60_000, hedge_floor_ms=60_000)


@pytest.fixture
def orders(instance: Instance) -> str:
    return new_topic(instance)


def held(instance: Instance) -> list[int]:
    return [len(zone_of(instance, zone).segments) for zone in (A, B, C)]


@pytest.mark.parametrize("acks", [Acks.ONE, Acks.QUORUM, Acks.ALL])
def test_fallback_gets_nothing_and_owes_nothing_while_both_zones_answer(
    instance: Instance, orders: str, acks: Acks
) -> None:
    send(instance, orders, "x", acks=acks)
    assert held(instance) == [1, 1, 0]
    [located] = refs_of(instance, key_of(instance, orders))
    assert located.ref.zones == 0b011
    assert scrub(instance, budget_ms=60_000, budget_bytes=1_000_000).copied == 0
    assert held(instance) == [1, 1, 0]


@pytest.mark.parametrize("down", [A, B])
@pytest.mark.parametrize("acks", [Acks.QUORUM, Acks.ALL])
def test_fallback_gets_the_segment_when_one_zone_refuses(
    instance: Instance, orders: str, acks: Acks, down: int
) -> None:
    zone_of(instance, down).is_down = True
    if acks is Acks.ALL:  # it waits for the zone until two puts have failed
        for _ in range(2):
            refused(ErrorCode.NOT_ENOUGH_ZONES, lambda: send(instance, orders, "refused", acks=Acks.ALL))
    send(instance, orders, "x", acks=acks)
    [located] = refs_of(instance, key_of(instance, orders))
    assert located.ref.zones == 0b111 & ~(1 << down)
    assert located.ref.segment_id in zone_of(instance, C).segments
    assert read_all(instance, orders) == [(0, "x")]


def test_fallback_is_written_at_once_when_a_zone_is_out_and_no_longer_when_it_is_back(
    instance: Instance, orders: str, clock: SteppedClock
) -> None:
    send(instance, orders, "before")
    zone_of(instance, B).is_down = True
    for _ in range(2):
        send(instance, orders, "failing")
    assert dict(list_zones(instance))["b"].status is ZoneStatus.OUT_OF_SYNC  # type: ignore[index]  # a ZoneName
    send(instance, orders, "without b")
    assert held(instance) == [4, 1, 3]

    zone_of(instance, B).is_down = False
    for _ in range(3):
        clock.sleep_ms(BARRIER_MS + 1_000)
        recover_zones(instance, 60_000)
    assert [state.status for _, state in list_zones(instance)] == [ZoneStatus.IN_SYNC] * 3
    assert {segment in zone_of(instance, B).segments for segment in zone_of(instance, A).segments} == {True}
    before = held(instance)[C]
    send(instance, orders, "after")
    assert held(instance)[C] == before


def test_append_fails_when_the_fallback_and_one_zone_are_down(instance: Instance, orders: str) -> None:
    for zone in (B, C):
        zone_of(instance, zone).is_down = True
    refused(ErrorCode.NOT_ENOUGH_ZONES, lambda: send(instance, orders, "x"))
    assert read_all(instance, orders) == []


def test_fallback_that_an_operator_lets_back_gets_no_copies(
    instance: Instance, orders: str, clock: SteppedClock
) -> None:
    send(instance, orders, "x")
    move_zone_by_operator(instance, "c", ZoneStatus.TAKEN_OUT, "drill")
    move_zone_by_operator(instance, "c", ZoneStatus.CATCHING_UP, "drill is over")
    for _ in range(3):
        clock.sleep_ms(BARRIER_MS + 1_000)
        recover_zones(instance, 60_000)
    assert [state.status for _, state in list_zones(instance)] == [ZoneStatus.IN_SYNC] * 3
    assert held(instance) == [1, 1, 0]


def test_topic_that_asks_for_three_zones_is_put_to_the_fallback_too(instance: Instance) -> None:
    strict = new_topic(instance, "strict", min_insync_zones=3)
    send(instance, strict, "x", acks=Acks.ALL)
    assert held(instance) == [1, 1, 1]


def test_append_to_one_zone_is_one_put_and_one_update_and_reads_no_zone_states() -> None:
    counts: Counter[str] = Counter()
    single = memory_instance(zones=("a",))
    topic = new_topic(single)
    instance = counted_instance(single, counts)
    send(instance, topic, "first")  # looks the topic up
    counts.clear()
    send(instance, topic, "x")
    assert counts == {"zone.put": 1, "log.append": 1}
    assert [located.ref.zones for located in refs_of(instance, key_of(instance, topic))] == [1, 1]
