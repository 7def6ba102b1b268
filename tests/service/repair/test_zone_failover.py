"""Reads while zones are away or hold damaged bytes.

A zone that fails and has to stay in sync, since another one catches up: appends wait for it, within bounds.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.zones.zone_state import Acks, Mover
from penstock_service.instance.instance import Instance
from penstock_service.instance.zones import ZoneLatency
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import produce
from penstock_service.segments.move_zone import change_zone, move_zone_by_operator
from tests.service.repair.zone_statuses import IN, OUT, TAKEN, UP, Hanging, append_refused, statuses
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
    values_of,
    with_tuning,
    without_recent_reads,
    zone_of,
)

ONE = len(batch("0"))


def _segments(instance: Instance) -> list[SegmentId]:
    """In the order of their appends."""
    return list(zone_of(instance, 0).segments)


def _damage(instance: Instance, zone: int, segment_id: SegmentId, position: int = 65) -> None:
    data = bytearray(zone_of(instance, zone).segments[segment_id])
    data[position] ^= 1
    zone_of(instance, zone).segments[segment_id] = bytes(data)


def _lose(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    del zone_of(instance, zone).segments[segment_id]


def _cut_off(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    zone_of(instance, zone).segments[segment_id] = zone_of(instance, zone).segments[segment_id][:40]


HARMS = {"damaged": _damage, "lost": _lose, "cut off": _cut_off}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("zones", [zones for count in (1, 2) for zones in itertools.combinations(range(3), count)])
def test_fetch_reads_another_zone_when_the_segment_is_harmed_in_some(
    instance: Instance, harm: str, zones: tuple[int, ...]
) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a", "b")
    [segment_id] = _segments(instance)
    for zone in zones:
        HARMS[harm](instance, zone, segment_id)
    for _ in range(5):
        assert read_all(instance, topic) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("zones", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_fetch_reads_another_zone_when_zones_are_down(instance: Instance, zones: tuple[int, ...]) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    for zone in zones:
        zone_of(instance, zone).is_down = True
    assert read_all(instance, topic) == [(0, "a")]


def test_fetch_is_unavailable_when_all_zones_are_down(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    for zone in range(3):
        zone_of(instance, zone).is_down = True
    with pytest.raises(PenstockError) as caught:
        ask(instance, topic)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert all(f"zone {name}" in caught.value.message for name in "abc")


def test_fetch_is_corrupt_when_every_copy_is_damaged(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    for zone in range(3):
        _damage(instance, zone, _segments(instance)[0])
    with pytest.raises(PenstockError) as caught:
        ask(instance, topic)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert _segments(instance)[0].hex() in caught.value.message


def test_fetch_may_be_tried_again_when_a_zone_with_a_whole_copy_may_come_back(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    _damage(instance, 0, _segments(instance)[0])
    _damage(instance, 1, _segments(instance)[0])
    zone_of(instance, 2).is_down = True
    with pytest.raises(PenstockError) as caught:
        ask(instance, topic)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    zone_of(instance, 2).is_down = False
    assert read_all(instance, topic) == [(0, "a")]


def test_fetch_stops_short_when_a_later_ref_cannot_be_read(instance: Instance) -> None:
    topic = new_topic(instance)
    for value in "abcd":
        send(instance, topic, value)
    for zone in range(3):
        _damage(instance, zone, _segments(instance)[2])
    fetched = ask(instance, topic)
    assert (values_of(fetched), fetched.next_offset) == ([(0, "a"), (1, "b")], 2)
    with pytest.raises(PenstockError) as caught:
        ask(instance, topic, 2)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert values_of(ask(instance, topic, 3)) == [(3, "d")]


def _fetch_three(instance: Instance, topic: str) -> list[str]:
    entries = [FetchEntry(topic=topic, partition=number, offset=0, max_bytes=1_000) for number in range(3)]
    results = fetch(instance, entries, max_bytes=3_000, min_bytes=1, wait_ms=0)
    return [values_of(result)[0][1] if isinstance(result, FetchResult) else result.code.name for result in results]


@pytest.fixture
def joined(instance: Instance) -> Instance:
    """Three partitions side by side in one segment, which one ranged get reads."""
    new_topic(instance, partitions=3)
    produce(instance, [entry("orders", number, batch(str(number))) for number in range(3)], Acks.ALL)
    return instance


def test_fetch_reads_the_neighbours_when_one_partition_is_damaged_in_all_zones(joined: Instance) -> None:
    for zone in range(3):
        _damage(joined, zone, _segments(joined)[0], ONE + 65)
    assert _fetch_three(joined, "orders") == ["0", "CORRUPT_SEGMENT", "2"]


def test_fetch_puts_partitions_together_when_each_zone_has_damaged_another(joined: Instance) -> None:
    for zone in range(3):
        _damage(joined, zone, _segments(joined)[0], zone * ONE + 65)
    assert _fetch_three(joined, "orders") == ["0", "1", "2"]


def test_fetch_fails_one_partition_alone_when_its_index_cannot_be_read(instance: Instance) -> None:
    new_topic(instance, "left")
    new_topic(instance, "right")
    for number in range(17):
        produce(instance, [entry(name, 0, batch(str(number))) for name in ("left", "right")], Acks.ALL)
    left_id = instance.topic_cache.get("left").topic_id

    def pages(original: Any, key: Any, *arguments: Any) -> Any:
        return () if key.topic_id == left_id else original(key, *arguments)

    damaged = another_instance(instance, log=Intercepted(instance.stores.log, pages=pages))
    entries = [FetchEntry(topic=name, partition=0, offset=0, max_bytes=10_000) for name in ("left", "right")]
    left, right = fetch(damaged, entries, max_bytes=10_000, min_bytes=1, wait_ms=0)
    assert isinstance(left, PenstockError)
    assert left.code is ErrorCode.CORRUPT_SEGMENT
    assert isinstance(right, FetchResult)
    assert len(values_of(right)) == 17


def test_fetch_asks_zones_that_confirmed_first_and_the_others_when_they_must(instance: Instance) -> None:
    """A zone that missed the put may have the segment since: it is asked last, and it is asked."""
    topic = new_topic(instance)
    zone_of(instance, 0).is_down = True
    send(instance, topic, "a")
    zone_of(instance, 0).is_down = False
    asked: list[str] = []

    def spy(zone: Any) -> Any:
        def get(original: Any, *arguments: Any) -> bytes:
            asked.append(zone.zone)
            data: bytes = original(*arguments)
            return data

        return Intercepted(zone, get=get)

    watched = without_recent_reads(another_instance(instance, zones=[spy(zone) for zone in instance.stores.zones]))
    assert read_all(watched, topic) == [(0, "a")]
    assert asked == ["b"]
    zone_of(instance, 0).segments |= zone_of(instance, 1).segments
    zone_of(instance, 1).is_down = zone_of(instance, 2).is_down = True
    asked.clear()
    assert read_all(watched, topic) == [(0, "a")]
    assert sorted(asked[:2]) == ["b", "c"]
    assert asked[2:] == ["a"]


def test_fetch_learns_the_fastest_zone(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "a")
    asked: list[str] = []
    takes_ms = {"a": 30.0, "b": 5.0, "c": 12.0}

    def slow(zone: Any) -> Any:
        def get(original: Any, *arguments: Any) -> bytes:
            asked.append(zone.zone)
            clock.time_ms += takes_ms[zone.zone]
            data: bytes = original(*arguments)
            return data

        return Intercepted(zone, get=get)

    reader = without_recent_reads(another_instance(instance, zones=[slow(zone) for zone in instance.stores.zones]))
    for _ in range(10):
        read_all(reader, topic)
    assert asked == ["a", "b", "c"] + ["b"] * 7, "each is tried once, then the fastest"
    takes_ms["b"] = 300.0
    for _ in range(10):
        read_all(reader, topic)
    assert asked[-1] == "c", "a zone that has become slow is left"


def test_zone_latency_orders_by_mean_when_observed_and_unknown_first() -> None:
    latency = ZoneLatency(SteppedClock())
    a, b, c = map(ZoneName, "abc")
    latency.observe(a, 10.0)
    latency.observe(b, 4.0)
    assert latency.fastest_first([a, b, c]) == [c, b, a]
    latency.observe_failure(c)
    assert latency.fastest_first([a, b, c]) == [b, a, c]
    for _ in range(20):
        latency.observe(a, 1.0)
    assert latency.fastest_first([a, b, c]) == [a, b, c]
    assert latency.fastest_first([]) == []


def test_zone_latency_of_one_instance_does_not_reach_another(instance: Instance) -> None:
    other = another_instance(instance)
    instance.zone_latency.observe(ZoneName("a"), 99.0)
    assert replace(other).zone_latency.fastest_first([ZoneName("a"), ZoneName("b")]) == ["a", "b"]


@pytest.fixture
def catching_up(instance: Instance) -> str:
    """A topic; zone a catches up, and b and c are in sync."""
    topic = new_topic(instance)
    move_zone_by_operator(instance, "a", TAKEN, "work on it")
    move_zone_by_operator(instance, "a", UP, "done")
    return topic


def test_append_by_all_comes_through_with_the_second_failure_although_the_zone_has_to_stay_in_sync(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    assert "zone b" in append_refused(another, catching_up, Acks.ALL).message
    for number in range(3):
        assert send(another, catching_up, str(number), acks=Acks.ALL).base_offset == number
    assert statuses(instance) == [UP, IN, IN]
    assert [ref.zones for ref in head_of(instance, catching_up).tail] == [0b101] * 3


def test_zone_that_hangs_and_has_to_stay_is_waited_for_twice_only(instance: Instance, catching_up: str) -> None:
    hanging = Hanging(instance, 1)
    another = another_instance(instance, zones=hanging.zones, put_timeout_ms=500, straggler_grace_ms=0)
    try:
        assert "no answer" in append_refused(another, catching_up, Acks.ALL).message
        send(another, catching_up, "0", acks=Acks.ALL)
        patient = with_tuning(another, put_timeout_ms=60_000)
        send(patient, catching_up, "1", acks=Acks.ALL)  # ends long before that
        assert statuses(instance) == [UP, IN, IN]
    finally:
        hanging.answer.set()


def test_zone_that_had_to_stay_is_waited_for_again_after_a_put_that_succeeded(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)
    send(another, catching_up, "without b", acks=Acks.ALL)
    zone_of(instance, 1).is_down = False
    send(another, catching_up, "with b", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(instance, catching_up).tail] == [0b101, 0b111]
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)


def test_zone_that_had_to_stay_is_moved_out_when_the_other_is_in_sync_again(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)
    send(another, catching_up, "x", acks=Acks.ALL)
    states = instance.stores.zone_states.get()
    change_zone(another_instance(instance), states, ZoneName("a"), IN, Mover.RECOVERY, "it has everything")
    send(another, catching_up, "y", acks=Acks.ALL)
    assert statuses(instance) == [IN, OUT, IN]


def test_append_by_all_has_no_fewer_copies_than_min_insync_zones(instance: Instance) -> None:
    """Of five zones d is out, e catches up, and c fails but has to stay: three are in sync, and two of them confirm."""
    zones = patient_instance(instance.clock, "abcde")
    topic = new_topic(zones, min_insync_zones=3)
    for zone in "de":
        move_zone_by_operator(zones, zone, TAKEN, "work on it")
    move_zone_by_operator(zones, "e", UP, "done")
    another = another_instance(zones)
    zone_of(zones, 2).is_down = True
    append_refused(another, topic, Acks.ALL)
    send(another, topic, "x", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(zones, topic).tail] == [0b10011]
    zone_of(zones, 4).is_down = True
    append_refused(another, topic, Acks.ALL)


def test_append_by_all_fails_without_a_majority_whatever_is_waited_for(instance: Instance, catching_up: str) -> None:
    another = another_instance(instance)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    for _ in range(5):
        append_refused(another, catching_up, Acks.ALL)
    assert read_all(another_instance(instance), catching_up) == []


def test_one_zone_that_has_to_stay_keeps_no_other_in(instance: Instance, catching_up: str) -> None:
    """b may not leave, for c alone would be in sync; a, which catches up, may."""
    another = another_instance(instance)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    for _ in range(2):
        append_refused(another, catching_up, Acks.QUORUM)
    assert statuses(instance) == [OUT, IN, IN]
