"""The segments that zones hold, by lists and single gets: never more than is there, whatever happens to the lists."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.ids import SegmentId
from penstock_service.instance import held_segments
from penstock_service.instance.held_segments import HeldSegments
from penstock_service.instance.instance import Instance
from tests.support.service import LOST_ANSWER, UNAVAILABLE, Intercepted, another_instance, counted_instance, zone_of

MANY = 3_000


def segment(number: int, prefix: int | None = None) -> SegmentId:
    """Its keys' prefix is its last byte."""
    last = number % 256 if prefix is None else prefix
    return SegmentId(b"\x01\x90" + bytes(8) + number.to_bytes(5, "big") + bytes([last]))


def lacking(
    instance: Instance, zones_of: dict[SegmentId, int], held: HeldSegments | None = None
) -> dict[SegmentId, int]:
    return (held or HeldSegments()).lacking(instance.stores.zones, instance.executor, zones_of)


def store(instance: Instance, zone: int, *segments: SegmentId) -> None:
    for each in segments:
        zone_of(instance, zone).segments[each] = b"x"


def test_each_segment_lacks_the_zones_that_do_not_hold_it(instance: Instance) -> None:
    first, second, third = (segment(number) for number in range(3))
    store(instance, 0, first, second)
    store(instance, 2, second, third)
    zones_of = {first: 0b111, second: 0b101, third: 0b010}
    assert lacking(instance, zones_of) == {first: 0b110, second: 0, third: 0b010}


def test_prefix_is_listed_once_and_what_is_listed_is_not_asked_for(instance: Instance) -> None:
    segments = [segment(number, prefix=7) for number in range(MANY)]
    store(instance, 1, *segments)
    counts: Counter[str] = Counter()
    counted, held = counted_instance(instance, counts), HeldSegments()
    for start in range(0, MANY, 500):
        assert not any(lacking(counted, dict.fromkeys(segments[start : start + 500], 0b010), held).values())
    assert counts == {"zone.list_keys": 3}


def test_only_prefixes_and_zones_that_are_asked_for_are_listed(instance: Instance) -> None:
    seen: list[str] = []

    def list_keys(original: Any, prefix: str, token: str | None) -> Any:
        seen.append(prefix)
        return original(prefix, token)

    zones: list[Any] = [Intercepted(zone, list_keys=list_keys) for zone in instance.stores.zones]
    lacking(another_instance(instance, zones=zones), {segment(3): 0b001, segment(9): 0b000})
    assert seen == ["03/"]


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST_ANSWER])
@pytest.mark.parametrize("part", [1, 2])
def test_copies_are_asked_for_when_their_list_fails(instance: Instance, error: Exception, part: int) -> None:
    there = [segment(number, prefix=0) for number in range(1_500)]
    missing = segment(MANY, prefix=0)
    store(instance, 0, *there)
    parts = 0

    def list_keys(original: Any, *arguments: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts == part:
            raise error
        return original(*arguments)

    zones: list[Any] = [Intercepted(instance.stores.zones[0], list_keys=list_keys), *instance.stores.zones[1:]]
    found = lacking(another_instance(instance, zones=zones), dict.fromkeys([*there, missing], 0b001))
    assert [each for each, lacking_zones in found.items() if lacking_zones] == [missing]
    assert parts == part


def test_copies_are_asked_for_when_there_is_no_room_for_more(instance: Instance) -> None:
    segments = [segment(number) for number in range(MANY)]
    store(instance, 0, *segments)
    counts: Counter[str] = Counter()
    held = HeldSegments(listed_max=100)
    assert not any(lacking(counted_instance(instance, counts), dict.fromkeys(segments, 0b001), held).values())
    assert 0 < counts["zone.list_keys"] < 100
    assert MANY - 200 < counts["zone.get"] < MANY


def test_zone_counts_as_empty_when_it_does_not_answer(instance: Instance) -> None:
    store(instance, 0, segment(1))
    zone_of(instance, 0).is_down = True
    assert lacking(instance, {segment(1): 0b001}) == {segment(1): 0b001}


def test_object_without_a_byte_is_no_copy(instance: Instance) -> None:
    """A list shows its key like any other: it is for the scrub then; asked for, it is lacking."""
    zone_of(instance, 0).segments[segment(1)] = b""
    assert lacking(instance, {segment(1): 0b001}, HeldSegments(listed_max=0)) == {segment(1): 0b001}


def test_list_is_believed_for_its_own_pass_only(instance: Instance) -> None:
    store(instance, 0, segment(1))
    held = HeldSegments()
    held.go_on("a pass")
    assert lacking(instance, {segment(1): 0b001}, held) == {segment(1): 0}
    zone_of(instance, 0).segments.clear()
    held.go_on("a pass")
    assert lacking(instance, {segment(1): 0b001}, held) == {segment(1): 0}
    held.go_on("the next")
    assert lacking(instance, {segment(1): 0b001}, held) == {segment(1): 0b001}


def test_lists_go_on_with_the_next_call_where_many_objects_broke_them_off(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_segments, "LISTED_KEYS_MAX", 1_000)
    monkeypatch.setattr(held_segments, "_PARTS_AT_ONCE", 1)
    segments = [segment(number, prefix=7) for number in range(2_500)] + [segment(MANY, prefix=8)]
    store(instance, 0, *segments)
    counts: Counter[str] = Counter()
    counted, held = counted_instance(instance, counts), HeldSegments()
    asked = []
    for _ in range(4):
        before = counts["zone.get"]
        assert not any(lacking(counted, dict.fromkeys(segments, 0b001), held).values())
        asked.append(counts["zone.get"] - before)
    assert asked == [1_500, 500, 0, 0]
    assert counts["zone.list_keys"] == 4
