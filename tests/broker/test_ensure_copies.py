"""Copies of one segment made and healed, whatever zones hold and wherever it dies."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_broker.produce import produce
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.quorum import Acks
from tests.broker.setting import Intercepted, Killed, batch, counted_broker, entry, new_topic, zone_of

ALL = 0b111


def _stored(broker: Broker) -> tuple[SegmentId, bytes]:
    """A segment with parts of three partitions, in every zone."""
    new_topic(broker, partitions=3)
    produce(broker, [entry("orders", number, batch("a", "b"), batch("c")) for number in range(3)], Acks.ALL)
    [(segment_id, body)] = zone_of(broker, 0).segments.items()
    return segment_id, body


def _flip(broker: Broker, zone: int, segment_id: SegmentId, position: int = 70) -> None:
    data = bytearray(zone_of(broker, zone).segments[segment_id])
    data[position] ^= 0x10
    zone_of(broker, zone).segments[segment_id] = bytes(data)


def _lose(broker: Broker, zone: int, segment_id: SegmentId) -> None:
    del zone_of(broker, zone).segments[segment_id]


def _truncate(broker: Broker, zone: int, segment_id: SegmentId) -> None:
    zone_of(broker, zone).segments[segment_id] = zone_of(broker, zone).segments[segment_id][:-1]


def _extend(broker: Broker, zone: int, segment_id: SegmentId) -> None:
    zone_of(broker, zone).segments[segment_id] = b"x" + zone_of(broker, zone).segments[segment_id]


def _empty(broker: Broker, zone: int, segment_id: SegmentId) -> None:
    zone_of(broker, zone).segments[segment_id] = b""


Harm = Callable[[Broker, int, SegmentId], None]
HARMS: list[Harm] = [_flip, _lose, _truncate, _extend, _empty]


def _copies(broker: Broker, segment_id: SegmentId) -> list[bytes | None]:
    return [zone_of(broker, zone).segments.get(segment_id) for zone in range(3)]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(HARMS, HARMS)))
@pytest.mark.parametrize("zones", [(0, 1), (0, 2), (1, 2)])
def test_ensure_copies_makes_every_zone_whole_from_the_one_good_copy(
    broker: Broker, first: Harm, second: Harm, zones: tuple[int, int]
) -> None:
    segment_id, body = _stored(broker)
    first(broker, zones[0], segment_id)
    second(broker, zones[1], segment_id)
    done = ensure_copies(broker, segment_id, ALL)
    assert _copies(broker, segment_id) == [body] * 3
    lost = sum(1 << zone for zone, harm in zip(zones, (first, second), strict=True) if harm is _lose)
    harmed = 1 << zones[0] | 1 << zones[1]
    assert (done.good, done.copied, done.healed, done.errors) == (ALL, lost, harmed & ~lost, ())


def test_ensure_copies_touches_only_the_zones_asked_for(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    _lose(broker, 0, segment_id)
    _flip(broker, 1, segment_id)
    harmed = _copies(broker, segment_id)[1]
    assert ensure_copies(broker, segment_id, 0b001).copied == 0b001
    assert _copies(broker, segment_id) == [body, harmed, body]


def test_ensure_copies_finds_every_flipped_bit_that_a_reader_could_meet(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    # Outside every checksum are the base offset and the leader epoch, which readers overwrite and ignore.
    unread = set(range(8)) | set(range(12, 16))
    starts = [position for position in range(len(body)) if body[position + 16 : position + 17] == b"\x02"]
    for position in range(len(body)):
        if any(position - start in unread for start in starts):
            continue
        _flip(broker, 2, segment_id, position)
        assert ensure_copies(broker, segment_id, 0b100).healed == 0b100, position
        assert _copies(broker, segment_id) == [body] * 3


@pytest.mark.parametrize("harm", HARMS)
def test_ensure_copies_writes_nothing_when_no_copy_is_good(broker: Broker, harm: Harm) -> None:
    segment_id, _ = _stored(broker)
    harm(broker, 0, segment_id)
    harm(broker, 1, segment_id)
    _flip(broker, 2, segment_id)
    before = _copies(broker, segment_id)
    with pytest.raises(PenstockError, match=segment_id.hex()) as caught:
        ensure_copies(broker, segment_id, ALL)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert _copies(broker, segment_id) == before


def test_ensure_copies_can_be_tried_again_when_the_good_copy_does_not_answer(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    _lose(broker, 0, segment_id)
    _flip(broker, 1, segment_id)
    zone_of(broker, 2).is_down = True
    with pytest.raises(PenstockError) as caught:
        ensure_copies(broker, segment_id, 0b001)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    zone_of(broker, 2).is_down = False
    ensure_copies(broker, segment_id, 0b001)
    assert _copies(broker, segment_id)[0] == body


def test_ensure_copies_tells_of_a_zone_that_does_not_answer_and_serves_the_others(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    _lose(broker, 0, segment_id)
    zone_of(broker, 1).is_down = True
    done = ensure_copies(broker, segment_id, ALL)
    assert (done.good, done.copied, done.healed) == (0b101, 0b001, 0)
    assert [error.code for error in done.errors] == [ErrorCode.STORAGE_UNAVAILABLE]
    assert _copies(broker, segment_id)[0] == body


def test_ensure_copies_tells_of_a_zone_that_does_not_take_the_copy(broker: Broker) -> None:
    segment_id, _ = _stored(broker)
    _lose(broker, 0, segment_id)

    def refuse(*_: Any) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "full")

    refusing = replace(broker, zones=[Intercepted(broker.zones[0], put=refuse), *broker.zones[1:]])
    done = ensure_copies(refusing, segment_id, ALL)
    assert (done.good, done.copied) == (0b110, 0)
    assert [error.message for error in done.errors] == ["full"]


def test_ensure_copies_costs_a_get_per_zone_asked_and_a_put_per_copy(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    counts: Counter[str] = Counter()
    counted = counted_broker(broker, counts)
    done = ensure_copies(counted, segment_id, ALL)
    assert counts == {"zone.get_whole": 3}
    assert done.bytes_read == 3 * len(body)
    _lose(broker, 0, segment_id)
    counts.clear()
    ensure_copies(counted, segment_id, 0b001)
    assert counts == {"zone.get_whole": 3, "zone.put": 1}


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("method", ["get_whole", "put", "overwrite"])
@pytest.mark.parametrize("zone", range(3))
def test_ensure_copies_is_completed_by_the_next_when_it_is_killed(
    broker: Broker, zone: int, method: str, is_applied: bool
) -> None:
    segment_id, body = _stored(broker)
    _lose(broker, 0, segment_id)
    _flip(broker, 1, segment_id)

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        if is_applied:
            original(*arguments)
        raise Killed

    zones = list(broker.zones)
    zones[zone] = Intercepted(zones[zone], **{method: die})
    try:
        ensure_copies(replace(broker, zones=zones), segment_id, ALL)
    except Killed:
        assert all(copy in (None, body) for number, copy in enumerate(_copies(broker, segment_id)) if number != 1)
    ensure_copies(broker, segment_id, ALL)
    assert _copies(broker, segment_id) == [body] * 3


def test_ensure_copies_does_no_harm_when_two_run_at_once(broker: Broker) -> None:
    segment_id, body = _stored(broker)
    _lose(broker, 0, segment_id)
    _flip(broker, 1, segment_id)

    def after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        ensure_copies(broker, segment_id, ALL)
        return original(*arguments)

    zones: list[Any] = list(broker.zones)
    zones[0] = Intercepted(zones[0], put=after_another)
    zones[1] = Intercepted(zones[1], overwrite=after_another)
    done = ensure_copies(replace(broker, zones=zones), segment_id, ALL)
    assert done.good == ALL
    assert _copies(broker, segment_id) == [body] * 3
