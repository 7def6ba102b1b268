"""What zones hold, by their lists and by asking: never more than is there, whatever becomes of the lists."""

from collections import Counter
from typing import Any

import pytest

from penstock_broker import held_segments
from penstock_broker.broker import Broker
from penstock_broker.held_segments import HeldSegments
from penstock_core.ids import SegmentId
from tests.broker.setting import LOST_ANSWER, UNAVAILABLE, Intercepted, another_instance, counted_broker, zone_of

MANY = 3_000


def segment(number: int, prefix: int | None = None) -> SegmentId:
    """Its keys' prefix is its last byte."""
    last = number % 256 if prefix is None else prefix
    return SegmentId(b"\x01\x90" + bytes(8) + number.to_bytes(5, "big") + bytes([last]))


def lacking(broker: Broker, zones_of: dict[SegmentId, int], held: HeldSegments | None = None) -> dict[SegmentId, int]:
    return (held or HeldSegments()).lacking(broker.zones, broker.parallel, zones_of)


def store(broker: Broker, zone: int, *segments: SegmentId) -> None:
    for each in segments:
        zone_of(broker, zone).segments[each] = b"x"


def test_each_segment_lacks_the_zones_that_do_not_hold_it(broker: Broker) -> None:
    first, second, third = (segment(number) for number in range(3))
    store(broker, 0, first, second)
    store(broker, 2, second, third)
    zones_of = {first: 0b111, second: 0b101, third: 0b010}
    assert lacking(broker, zones_of) == {first: 0b110, second: 0, third: 0b010}


def test_prefix_is_listed_once_and_what_is_listed_is_not_asked_for(broker: Broker) -> None:
    segments = [segment(number, prefix=7) for number in range(MANY)]
    store(broker, 1, *segments)
    counts: Counter[str] = Counter()
    counted, held = counted_broker(broker, counts), HeldSegments()
    for start in range(0, MANY, 500):
        assert not any(lacking(counted, dict.fromkeys(segments[start : start + 500], 0b010), held).values())
    assert counts == {"zone.list_keys": 3}


def test_only_prefixes_and_zones_that_are_asked_for_are_listed(broker: Broker) -> None:
    seen: list[str] = []

    def list_keys(original: Any, prefix: str, token: str | None) -> Any:
        seen.append(prefix)
        return original(prefix, token)

    zones: list[Any] = [Intercepted(zone, list_keys=list_keys) for zone in broker.zones]
    lacking(another_instance(broker, zones=zones), {segment(3): 0b001, segment(9): 0b000})
    assert seen == ["03/"]


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST_ANSWER])
@pytest.mark.parametrize("part", [1, 2])
def test_copies_are_asked_for_when_their_list_fails(broker: Broker, error: Exception, part: int) -> None:
    there = [segment(number, prefix=0) for number in range(1_500)]
    missing = segment(MANY, prefix=0)
    store(broker, 0, *there)
    parts = 0

    def list_keys(original: Any, *arguments: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts == part:
            raise error
        return original(*arguments)

    zones: list[Any] = [Intercepted(broker.zones[0], list_keys=list_keys), *broker.zones[1:]]
    found = lacking(another_instance(broker, zones=zones), dict.fromkeys([*there, missing], 0b001))
    assert [each for each, lacking_zones in found.items() if lacking_zones] == [missing]
    assert parts == part


def test_copies_are_asked_for_when_there_is_no_room_for_more(broker: Broker) -> None:
    segments = [segment(number) for number in range(MANY)]
    store(broker, 0, *segments)
    counts: Counter[str] = Counter()
    held = HeldSegments(listed_max=100)
    assert not any(lacking(counted_broker(broker, counts), dict.fromkeys(segments, 0b001), held).values())
    assert 0 < counts["zone.list_keys"] < 100
    assert MANY - 200 < counts["zone.get"] < MANY


def test_zone_that_does_not_answer_holds_nothing_for_all_we_know(broker: Broker) -> None:
    store(broker, 0, segment(1))
    zone_of(broker, 0).is_down = True
    assert lacking(broker, {segment(1): 0b001}) == {segment(1): 0b001}


def test_object_without_a_byte_is_no_copy(broker: Broker) -> None:
    """A list shows its key like any other: it is for the scrub then; asked for, it is lacking."""
    zone_of(broker, 0).segments[segment(1)] = b""
    assert lacking(broker, {segment(1): 0b001}, HeldSegments(listed_max=0)) == {segment(1): 0b001}


def test_what_was_listed_is_believed_for_this_pass_only(broker: Broker) -> None:
    store(broker, 0, segment(1))
    held = HeldSegments()
    held.go_on("a pass")
    assert lacking(broker, {segment(1): 0b001}, held) == {segment(1): 0}
    zone_of(broker, 0).segments.clear()
    held.go_on("a pass")
    assert lacking(broker, {segment(1): 0b001}, held) == {segment(1): 0}
    held.go_on("the next")
    assert lacking(broker, {segment(1): 0b001}, held) == {segment(1): 0b001}


def test_lists_go_on_with_the_next_call_where_many_objects_broke_them_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_segments, "_KEYS_PER_CALL", 1_000)
    monkeypatch.setattr(held_segments, "_PARTS_AT_ONCE", 1)
    segments = [segment(number, prefix=7) for number in range(2_500)] + [segment(MANY, prefix=8)]
    store(broker, 0, *segments)
    counts: Counter[str] = Counter()
    counted, held = counted_broker(broker, counts), HeldSegments()
    asked = []
    for _ in range(4):
        before = counts["zone.get"]
        assert not any(lacking(counted, dict.fromkeys(segments, 0b001), held).values())
        asked.append(counts["zone.get"] - before)
    assert asked == [1_500, 500, 0, 0]
    assert counts["zone.list_keys"] == 4
