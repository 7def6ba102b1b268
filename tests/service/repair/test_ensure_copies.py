"""Copies of one segment made and healed, whatever zones hold and wherever it dies."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.repair.ensure_copies import ensure_copies
from tests.support.service import Intercepted, Killed, batch, counted_instance, entry, new_topic, with_stores, zone_of

ALL = 0b111


def _stored(instance: Instance) -> tuple[SegmentId, bytes]:
    """A segment with parts of three partitions, in every zone."""
    new_topic(instance, partitions=3)
    produce(instance, [entry("orders", number, batch("a", "b"), batch("c")) for number in range(3)], Acks.ALL)
    [(segment_id, body)] = zone_of(instance, 0).segments.items()
    return segment_id, body


def _flip(instance: Instance, zone: int, segment_id: SegmentId, position: int = 70) -> None:
    data = bytearray(zone_of(instance, zone).segments[segment_id])
    data[position] ^= 0x10
    zone_of(instance, zone).segments[segment_id] = bytes(data)


def _lose(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    del zone_of(instance, zone).segments[segment_id]


def _truncate(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    zone_of(instance, zone).segments[segment_id] = zone_of(instance, zone).segments[segment_id][:-1]


def _extend(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    zone_of(instance, zone).segments[segment_id] = b"x" + zone_of(instance, zone).segments[segment_id]


def _empty(instance: Instance, zone: int, segment_id: SegmentId) -> None:
    zone_of(instance, zone).segments[segment_id] = b""


Harm = Callable[[Instance, int, SegmentId], None]
HARMS: list[Harm] = [_flip, _lose, _truncate, _extend, _empty]


def _copies(instance: Instance, segment_id: SegmentId) -> list[bytes | None]:
    return [zone_of(instance, zone).segments.get(segment_id) for zone in range(3)]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(HARMS, HARMS)))
@pytest.mark.parametrize("zones", [(0, 1), (0, 2), (1, 2)])
def test_ensure_copies_makes_every_zone_whole_from_the_one_good_copy(
    instance: Instance, first: Harm, second: Harm, zones: tuple[int, int]
) -> None:
    segment_id, body = _stored(instance)
    first(instance, zones[0], segment_id)
    second(instance, zones[1], segment_id)
    done = ensure_copies(instance.stores.zones, instance.executor, segment_id, ALL)
    assert _copies(instance, segment_id) == [body] * 3
    lost = sum(1 << zone for zone, harm in zip(zones, (first, second), strict=True) if harm is _lose)
    harmed = 1 << zones[0] | 1 << zones[1]
    assert (done.good, done.copied, done.healed, done.errors) == (ALL, lost, harmed & ~lost, ())


def test_ensure_copies_touches_only_the_zones_asked_for(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    _lose(instance, 0, segment_id)
    _flip(instance, 1, segment_id)
    harmed = _copies(instance, segment_id)[1]
    assert ensure_copies(instance.stores.zones, instance.executor, segment_id, 0b001).copied == 0b001
    assert _copies(instance, segment_id) == [body, harmed, body]


def test_ensure_copies_finds_every_flipped_bit_that_a_reader_could_meet(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    # Outside every checksum are the base offset and the leader epoch, which readers overwrite and ignore.
    unread = set(range(8)) | set(range(12, 16))
    starts = [position for position in range(len(body)) if body[position + 16 : position + 17] == b"\x02"]
    for position in range(len(body)):
        if any(position - start in unread for start in starts):
            continue
        _flip(instance, 2, segment_id, position)
        assert ensure_copies(instance.stores.zones, instance.executor, segment_id, 0b100).healed == 0b100, position
        assert _copies(instance, segment_id) == [body] * 3


@pytest.mark.parametrize("harm", HARMS)
def test_ensure_copies_writes_nothing_when_no_copy_is_good(instance: Instance, harm: Harm) -> None:
    segment_id, _ = _stored(instance)
    harm(instance, 0, segment_id)
    harm(instance, 1, segment_id)
    _flip(instance, 2, segment_id)
    before = _copies(instance, segment_id)
    with pytest.raises(PenstockError, match=segment_id.hex()) as caught:
        ensure_copies(instance.stores.zones, instance.executor, segment_id, ALL)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert _copies(instance, segment_id) == before


def test_ensure_copies_can_be_tried_again_when_the_good_copy_does_not_answer(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    _lose(instance, 0, segment_id)
    _flip(instance, 1, segment_id)
    zone_of(instance, 2).is_down = True
    with pytest.raises(PenstockError) as caught:
        ensure_copies(instance.stores.zones, instance.executor, segment_id, 0b001)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    zone_of(instance, 2).is_down = False
    ensure_copies(instance.stores.zones, instance.executor, segment_id, 0b001)
    assert _copies(instance, segment_id)[0] == body


def test_ensure_copies_tells_of_a_zone_that_does_not_answer_and_serves_the_others(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    _lose(instance, 0, segment_id)
    zone_of(instance, 1).is_down = True
    done = ensure_copies(instance.stores.zones, instance.executor, segment_id, ALL)
    assert (done.good, done.copied, done.healed) == (0b101, 0b001, 0)
    assert [error.code for error in done.errors] == [ErrorCode.STORAGE_UNAVAILABLE]
    assert _copies(instance, segment_id)[0] == body


def test_ensure_copies_tells_of_a_zone_that_does_not_take_the_copy(instance: Instance) -> None:
    segment_id, _ = _stored(instance)
    _lose(instance, 0, segment_id)

    def refuse(*_: Any) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "full")

    refusing = with_stores(
        instance, zones=[Intercepted(instance.stores.zones[0], put=refuse), *instance.stores.zones[1:]]
    )
    done = ensure_copies(refusing.stores.zones, refusing.executor, segment_id, ALL)
    assert (done.good, done.copied) == (0b110, 0)
    assert [error.message for error in done.errors] == ["full"]


def test_ensure_copies_costs_a_get_per_zone_asked_and_a_put_per_copy(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    done = ensure_copies(counted.stores.zones, counted.executor, segment_id, ALL)
    assert counts == {"zone.get_whole": 3}
    assert done.bytes_read == 3 * len(body)
    _lose(instance, 0, segment_id)
    counts.clear()
    ensure_copies(counted.stores.zones, counted.executor, segment_id, 0b001)
    assert counts == {"zone.get_whole": 3, "zone.put": 1}


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("method", ["get_whole", "put", "overwrite"])
@pytest.mark.parametrize("zone", range(3))
def test_ensure_copies_is_completed_by_the_next_when_it_is_killed(
    instance: Instance, zone: int, method: str, is_applied: bool
) -> None:
    segment_id, body = _stored(instance)
    _lose(instance, 0, segment_id)
    _flip(instance, 1, segment_id)

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        if is_applied:
            original(*arguments)
        raise Killed

    zones = list(instance.stores.zones)
    zones[zone] = Intercepted(zones[zone], **{method: die})
    try:
        ensure_copies(zones, instance.executor, segment_id, ALL)
    except Killed:
        assert all(copy in (None, body) for number, copy in enumerate(_copies(instance, segment_id)) if number != 1)
    ensure_copies(instance.stores.zones, instance.executor, segment_id, ALL)
    assert _copies(instance, segment_id) == [body] * 3


def test_ensure_copies_does_no_harm_when_two_run_at_once(instance: Instance) -> None:
    segment_id, body = _stored(instance)
    _lose(instance, 0, segment_id)
    _flip(instance, 1, segment_id)

    def after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        ensure_copies(instance.stores.zones, instance.executor, segment_id, ALL)
        return original(*arguments)

    zones: list[Any] = list(instance.stores.zones)
    zones[0] = Intercepted(zones[0], put=after_another)
    zones[1] = Intercepted(zones[1], overwrite=after_another)
    done = ensure_copies(zones, instance.executor, segment_id, ALL)
    assert done.good == ALL
    assert _copies(instance, segment_id) == [body] * 3
