"""A read that meets a bad copy reports it, once a minute, and is not harmed by that."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import (
    REPORT_INTERVAL_MS,
    REPORTS_REMEMBERED_MAX,
)
from penstock_core.log.repair import Repair, encode_message
from penstock_core.zones.zone_state import Acks
from penstock_handlers.replicate import serve
from penstock_service.instance.instance import Instance
from tests.service.repair.owed_copies import is_whole, move_out, queued, sent
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    read_all,
    send,
    zone_of,
)


def _harm(instance: Instance, zone: int) -> SegmentId:
    [segment_id] = zone_of(instance, 0).segments
    data = bytearray(zone_of(instance, zone).segments[segment_id])
    data[65] ^= 1
    zone_of(instance, zone).segments[segment_id] = bytes(data)
    return segment_id


@pytest.mark.parametrize("is_lost", [False, True])
def test_read_that_meets_a_bad_copy_has_it_healed(instance: Instance, key: PartitionKey, is_lost: bool) -> None:
    send(instance, "orders", "a", acks=Acks.ALL)
    segment_id = _harm(instance, 0)
    if is_lost:
        del zone_of(instance, 0).segments[segment_id]
    assert read_all(instance, "orders") == [(0, "a")]
    [repair] = sent(instance)
    assert repair == Repair(segment_id=segment_id, zones=frozenset((instance.stores.zone_names[0],)))
    serve(queued(encode_message(repair)), instance)
    assert is_whole(instance)


def test_bad_copy_is_reported_once_a_minute(instance: Instance, key: PartitionKey, clock: SteppedClock) -> None:
    send(instance, "orders", "a", acks=Acks.ALL)
    _harm(instance, 0)
    for number in (1, 2):
        for _ in range(3):
            # A fresh instance does not avoid the slow zone yet; the throttle is the one instance's.
            fresh = replace(another_instance(instance), repair_throttle=instance.repair_throttle)
            assert read_all(fresh, "orders") == [(0, "a")]
        assert len(sent(instance)) == number
        clock.time_ms += REPORT_INTERVAL_MS


def test_reports_are_bounded(instance: Instance, clock: SteppedClock) -> None:
    zone = instance.stores.zone_names[0]
    copies = [SegmentId(number.to_bytes(16, "big")) for number in range(REPORTS_REMEMBERED_MAX + 1)]
    taken = [instance.repair_throttle.take(segment_id, zone) for segment_id in copies]
    assert taken == [True] * REPORTS_REMEMBERED_MAX + [False]
    clock.time_ms += REPORT_INTERVAL_MS
    assert instance.repair_throttle.take(copies[-1], zone)


def test_read_is_not_harmed_by_a_queue_that_does_not_answer(instance: Instance, key: PartitionKey) -> None:
    send(instance, "orders", "a", acks=Acks.ALL)
    _harm(instance, 0)

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    failing = another_instance(instance, repair_queue=Intercepted(instance.stores.repair_queue, send=refuse))
    assert read_all(failing, "orders") == [(0, "a")]
    assert failing.telemetry.take()[0]["copy_report_failed"] == 1


def test_zone_that_does_not_answer_or_is_out_is_not_reported(instance: Instance, key: PartitionKey) -> None:
    send(instance, "orders", "a", acks=Acks.ALL)
    zone_of(instance, 0).is_down = True
    assert read_all(another_instance(instance), "orders") == [(0, "a")]
    zone_of(instance, 0).is_down = False
    _harm(instance, 0)
    move_out(instance, 0)
    other = another_instance(instance)
    other.zone_cache.read_through()
    assert read_all(other, "orders") == [(0, "a")]
    assert sent(instance) == []
