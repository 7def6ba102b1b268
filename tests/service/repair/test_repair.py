"""Repair of one segment: whole copies and set bits, whatever fails on the way.

A read that meets a bad copy reports it, once a minute, and is not harmed by that.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.limits import REPORT_INTERVAL_MS, REPORTS_REMEMBERED_MAX
from penstock_core.log.repair import NamedRef, Repair, encode_message, repairs_due
from penstock_core.zones.zone_state import Acks, Mover, ZoneStatus
from penstock_handlers.replicate import serve
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import RepairResult, repair_segment
from tests.service.repair.owed_copies import is_whole, miss, move_out, queued, sent, zones
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    counted_instance,
    read_all,
    refs_of,
    send,
    zone_of,
)


def _due(instance: Instance, key: PartitionKey) -> list[Repair]:
    refs = [NamedRef(key=key, located=located) for located in refs_of(instance, key)]
    return repairs_due(refs, instance.stores.zone_names, 0b111)


@pytest.mark.parametrize("removal", ["truncation", "deletion that died", None])
def test_repair_of_a_segment_that_no_zone_has_fails_only_while_its_ref_stands(
    instance: Instance, key: PartitionKey, removal: str | None
) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)
    for zone in range(3):
        zone_of(instance, zone).segments.clear()
    if removal is None:
        with pytest.raises(PenstockError) as raised:
            repair_segment(instance, repair)
        assert raised.value.code is ErrorCode.CORRUPT_SEGMENT
        return
    if removal == "truncation":
        instance.stores.log.raise_log_start(key, Offset(1))
    else:  # the name is gone, and the sweep takes the bytes; the head waits for retention
        instance.stores.topics.delete(instance.topic_cache.read_through("orders"), instance.clock.now_ms())
        assert key in instance.stores.log.heads([key])
    assert repair_segment(instance, repair) == RepairResult()
    assert instance.telemetry.take()[0]["segment_lost"] == 0


def test_repair_without_a_good_copy_fails_for_the_dead_letters_and_changes_nothing(
    instance: Instance, key: PartitionKey
) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)
    for zone in (0, 1):
        zone_of(instance, zone).segments[repair.segment_id] = b"rot"
    with pytest.raises(PenstockError, match="no zone has a good copy") as caught:
        repair_segment(another_instance(instance), repair)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert serve(queued(encode_message(repair)), instance)["batchItemFailures"]
    assert repair.segment_id not in zone_of(instance, 2).segments
    assert zones(instance, key) == [0b011]


@pytest.mark.parametrize("to", [ZoneStatus.TAKEN_OUT, ZoneStatus.OUT_OF_SYNC])
def test_zone_that_is_out_is_not_repaired_into(instance: Instance, key: PartitionKey, to: ZoneStatus) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)
    move_out(instance, 2, Mover.OPERATOR if to is ZoneStatus.TAKEN_OUT else Mover.APPENDER, to)
    counts: Counter[str] = Counter()
    assert repair_segment(counted_instance(another_instance(instance), counts), repair) == RepairResult()
    assert not any(name.startswith("zone.") for name in counts)
    assert repair.segment_id not in zone_of(instance, 2).segments
    assert zones(instance, key) == [0b011]


def test_bits_are_set_for_the_zones_that_could_be_repaired(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)
    both = replace(repair, zones=frozenset(instance.stores.zone_names))
    zone_of(instance, 1).is_down = True
    with pytest.raises(PenstockError):
        repair_segment(another_instance(instance), both)
    assert zones(instance, key) == [0b111]


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("place", ["zone.get_whole", "zone.put", "log.mark_stored"])
def test_repair_is_completed_by_the_next_when_it_is_killed(
    instance: Instance, key: PartitionKey, place: str, is_applied: bool
) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        if is_applied:
            original(*arguments)
        raise Killed

    port, method = place.split(".")
    dying = (
        another_instance(instance, zones=[Intercepted(zone, **{method: die}) for zone in instance.stores.zones])
        if port == "zone"
        else another_instance(instance, log=Intercepted(instance.stores.log, **{method: die}))
    )
    with pytest.raises(Killed):
        repair_segment(dying, repair)
    repair_segment(another_instance(instance), repair)
    assert zones(instance, key) == [0b111]
    assert is_whole(instance)


def test_two_that_repair_the_same_at_once_agree(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)

    def after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        repair_segment(another_instance(instance), repair)
        return original(*arguments)

    racing = another_instance(instance, zones=[Intercepted(zone, put=after_another) for zone in instance.stores.zones])
    assert repair_segment(racing, repair).marked == 1
    assert zones(instance, key) == [0b111]
    assert is_whole(instance)


def test_repair_of_a_deleted_topic_ends(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    [repair] = _due(instance, key)
    instance.stores.log.delete_head(key)
    assert repair_segment(another_instance(instance), repair).marked == 0


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
