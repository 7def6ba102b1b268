"""Reads while zones are away or hold damaged bytes."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.zones import ZoneLatency
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import produce
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    new_topic,
    read_all,
    send,
    values_of,
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
