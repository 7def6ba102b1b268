"""Repair from what heads and reads tell to whole copies and set bits, whatever fails on the way."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.limits import (
    LOOK_MS_MAX,
    REPORT_INTERVAL_MS,
    REPORTS_REMEMBERED_MAX,
    TAIL_ROLL_REFS,
)
from penstock_core.log.repair import Look, NamedRef, OwedRange, Repair, encode_message, repairs_due
from penstock_core.log.roll import is_roll_due
from penstock_core.storage.head_item import head_item
from penstock_core.zones.quorum import Acks
from penstock_core.zones.zone_state import Mover, ZoneStatus, move
from penstock_handlers.replicate import serve
from penstock_service.adapters.memory.zones import MemoryRepairQueue
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.repair.repair_segment import RepairResult, repair_segment
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    new_topic,
    read_all,
    refs_of,
    send,
    zone_of,
)


@pytest.fixture
def key(instance: Instance) -> PartitionKey:
    return instance.topic_cache.get_partition(new_topic(instance), 0)[1]


def _miss(instance: Instance, *values: str, zone: int = 2) -> None:
    """Appends that the zone misses, each by an instance whose first failed put it is."""
    for value in values:
        zone_of(instance, zone).is_down = True
        send(another_instance(instance), "orders", value)
        zone_of(instance, zone).is_down = False


def _zones(instance: Instance, key: PartitionKey) -> list[int]:
    return [located.ref.zones for located in refs_of(instance, key)]


def _due(instance: Instance, key: PartitionKey) -> list[Repair]:
    refs = [NamedRef(key=key, located=located) for located in refs_of(instance, key)]
    return repairs_due(refs, instance.stores.zone_names, 0b111)


def _streamed(instance: Instance, key: PartitionKey, number: str = "1") -> dict[str, Any]:
    """The stream's record of the head as it is now, as Lambda hands it over."""
    head = head_item(key, instance.stores.log.heads([key])[key])
    image = json.loads(json.dumps(head, default=lambda data: base64.b64encode(data).decode()))
    keys = {name: image[name] for name in ("pk", "sk")}
    return {
        "eventSource": "aws:dynamodb",
        "eventName": "MODIFY",
        "dynamodb": {"Keys": keys, "NewImage": image, "SequenceNumber": number},
    }


def _queued(*messages: str) -> dict[str, Any]:
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": str(number), "body": body} for number, body in enumerate(messages)
        ]
    }


def _take_looks(instance: Instance) -> list[Look]:
    assert isinstance(instance.stores.repair_queue, MemoryRepairQueue)
    looks = instance.stores.repair_queue.looks.copy()
    instance.stores.repair_queue.looks.clear()
    return looks


def _stream_and_look(instance: Instance, *records: dict[str, Any]) -> None:
    """Brings records of the stream to `replicate`, and then the looks that it asked for."""
    assert serve({"Records": records}, instance) == {"batchItemFailures": []}
    looks = _take_looks(instance)
    assert looks
    assert serve(_queued(*map(encode_message, looks)), instance) == {"batchItemFailures": []}


def _put_late(instance: Instance, *values: str) -> None:
    """Appends whose third put arrives after the append."""
    for value in values:
        _miss(instance, value)
        zone_of(instance, 2).segments.update(zone_of(instance, 0).segments)


def _range(key: PartitionKey, start_offset: int, end_offset: int) -> OwedRange:
    return OwedRange(key=key, start_offset=Offset(start_offset), end_offset=Offset(end_offset))


def _sent(instance: Instance) -> list[Repair]:
    assert isinstance(instance.stores.repair_queue, MemoryRepairQueue)
    return instance.stores.repair_queue.repairs


def _is_whole(instance: Instance) -> bool:
    return zone_of(instance, 0).segments == zone_of(instance, 1).segments == zone_of(instance, 2).segments


def _move_out(
    instance: Instance, zone: int, mover: Mover = Mover.OPERATOR, to: ZoneStatus = ZoneStatus.TAKEN_OUT
) -> None:
    before = instance.stores.zone_states.get()
    name = instance.stores.zone_names[zone]
    instance.stores.zone_states.change(
        before, move(before, instance.stores.zone_names, name, to, mover, now_ms=instance.clock.now_ms(), reason="test")
    )


def test_stream_record_repairs_every_debt_of_the_tail(instance: Instance, key: PartitionKey) -> None:
    send(instance, "orders", "a")
    _miss(instance, "b", "c")
    _miss(instance, "d", zone=0)
    assert _zones(instance, key) == [0b111, 0b011, 0b011, 0b110]
    _stream_and_look(another_instance(instance), _streamed(instance, key))
    assert _zones(instance, key) == [0b111] * 4
    assert _is_whole(instance)


def test_stream_records_that_show_the_same_debt_cost_one_repair(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    record = _streamed(instance, key)
    counts: Counter[str] = Counter()
    _stream_and_look(counted_instance(instance, counts), *[record] * 5)
    assert (counts["zone.put"], counts["log.mark_stored"]) == (1, 1)


def test_stream_touches_no_segment_and_no_head(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a", "b")
    counts: Counter[str] = Counter()
    serve({"Records": [_streamed(instance, key)]}, counted_instance(instance, counts))
    assert counts == {"zone_states.get": 1}
    assert _take_looks(instance) == [Look(ranges=(_range(key, 0, 2),))]


def test_hundred_appends_whose_third_put_is_late_cost_one_message(instance: Instance, key: PartitionKey) -> None:
    counts: Counter[str] = Counter()
    records = []
    for number in range(100):
        _put_late(instance, str(number))
        records.append(_streamed(instance, key, str(number)))
    _stream_and_look(counted_instance(instance, counts), *records)
    assert (counts["zone.put"], counts["zone.get_whole"], counts["log.mark_stored"]) == (0, 100, 100)
    assert _zones(instance, key) == [0b111] * 100
    assert _sent(instance) == []


def test_look_ends_where_it_is_told_and_reads_no_copy_of_a_ref_that_owes_nothing(
    instance: Instance, key: PartitionKey
) -> None:
    _miss(instance, "a")
    send(instance, "orders", "whole")
    _miss(instance, "b", "too new")
    counts: Counter[str] = Counter()
    look = Look(ranges=(_range(key, 0, 3),))
    assert serve(_queued(encode_message(look)), counted_instance(instance, counts)) == {"batchItemFailures": []}
    assert _zones(instance, key) == [0b111, 0b111, 0b111, 0b011]
    assert counts["zone.put"] == 2


def test_look_that_runs_out_of_time_sends_the_rest_as_another(
    instance: Instance, key: PartitionKey, clock: SteppedClock
) -> None:
    _miss(instance, *"abc")

    def take_long(original: Callable[..., Any], *arguments: Any) -> Any:
        clock.time_ms += LOOK_MS_MAX
        return original(*arguments)

    slow = [Intercepted(zone, get_whole=take_long) for zone in instance.stores.zones]
    look = Look(ranges=(_range(key, 0, 3),))
    assert serve(_queued(encode_message(look)), another_instance(instance, zones=slow)) == {"batchItemFailures": []}
    assert _zones(instance, key) == [0b111, 0b011, 0b011]
    [rest] = _take_looks(instance)
    assert rest == Look(ranges=(_range(key, 1, 3),))
    serve(_queued(encode_message(rest)), instance)
    assert _is_whole(instance)


def test_look_at_a_deleted_topic_or_while_the_zone_is_out_ends(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    message = encode_message(Look(ranges=(_range(key, 0, 1),)))
    _move_out(instance, 2)
    counts: Counter[str] = Counter()
    assert serve(_queued(message), counted_instance(instance, counts)) == {"batchItemFailures": []}
    assert counts == {"zone_states.get": 1, "log.heads": 1}
    _move_out(instance, 2, to=ZoneStatus.CATCHING_UP)
    instance.stores.log.delete_head(key)
    assert serve(_queued(message), another_instance(instance)) == {"batchItemFailures": []}
    assert _sent(instance) == []


def test_stream_records_of_two_partitions_that_share_a_segment_mark_both(instance: Instance) -> None:
    topic = new_topic(instance, "payments", partitions=2)
    keys = [instance.topic_cache.get_partition(topic, partition)[1] for partition in range(2)]
    zone_of(instance, 2).is_down = True
    produce(another_instance(instance), [entry(topic, number, batch("a")) for number in range(2)], Acks.QUORUM)
    zone_of(instance, 2).is_down = False
    records = [_streamed(instance, key, str(number)) for number, key in enumerate(keys)]
    counts: Counter[str] = Counter()
    _stream_and_look(counted_instance(instance, counts), *records)
    assert [_zones(instance, key) for key in keys] == [[0b111], [0b111]]
    assert counts["zone.put"] == 1


def test_stream_record_passes_over_what_lies_below_the_log_start(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a", "b")
    instance.stores.log.raise_log_start(key, Offset(1))
    [first, _] = refs_of(instance, key)
    for zone in range(3):  # as the sweep does
        zone_of(instance, zone).segments.pop(first.ref.segment_id, None)
    _stream_and_look(another_instance(instance), _streamed(instance, key))
    assert _zones(instance, key) == [0b011, 0b111]
    assert _sent(instance) == []


@pytest.mark.parametrize("removal", ["truncation", "deletion that died", None])
def test_repair_of_a_segment_that_no_zone_has_fails_only_while_its_ref_stands(
    instance: Instance, key: PartitionKey, removal: str | None
) -> None:
    _miss(instance, "a")
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


def test_look_finds_a_ref_that_has_rolled_meanwhile_in_its_page(instance: Instance, key: PartitionKey) -> None:
    for number in range(TAIL_ROLL_REFS - 1):
        send(instance, "orders", str(number))
    _miss(instance, "last")
    head = instance.stores.log.heads([key])[key]
    assert head.tail == ()
    [page] = instance.stores.log.pages(key, Offset(0), 10)
    before = replace(head, tail_base=page.base_offset, tail=page.refs)
    assert is_roll_due(before)
    look = Look(ranges=(_range(key, TAIL_ROLL_REFS - 1, TAIL_ROLL_REFS),))
    assert serve(_queued(encode_message(look)), another_instance(instance)) == {"batchItemFailures": []}
    assert _zones(instance, key) == [0b111] * TAIL_ROLL_REFS
    assert _is_whole(instance)


def test_repair_that_fails_is_handed_over_to_the_queue_and_done_from_there(
    instance: Instance, key: PartitionKey
) -> None:
    _miss(instance, "a")
    zone_of(instance, 2).is_down = True
    other = another_instance(instance)
    _stream_and_look(other, _streamed(instance, key))
    [repair] = _sent(instance)
    message = encode_message(repair)
    failed = serve(_queued("nonsense", message), other)
    assert failed == {"batchItemFailures": [{"itemIdentifier": "0"}, {"itemIdentifier": "1"}]}
    zone_of(instance, 2).is_down = False
    assert serve(_queued(message), other) == {"batchItemFailures": []}
    assert _zones(instance, key) == [0b111]
    assert _is_whole(instance)


def test_stream_comes_again_when_the_queue_takes_no_look(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    records = [_streamed(instance, key, number) for number in ("11", "12")]

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    other = another_instance(instance, repair_queue=Intercepted(instance.stores.repair_queue, send=refuse))
    assert serve({"Records": records}, other) == {"batchItemFailures": [{"itemIdentifier": "11"}]}


def test_stream_goes_on_from_a_record_that_fails_and_tells_of_those_before(
    instance: Instance, key: PartitionKey
) -> None:
    _miss(instance, "a")
    records = [_streamed(instance, key, number) for number in ("11", "12")]
    asked = []

    def refuse_the_second(original: Callable[..., Any]) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise UNAVAILABLE
        return original()

    states = Intercepted(instance.stores.zone_states, get=refuse_the_second)
    other = another_instance(instance, zone_states=states)
    other.zone_cache.get = states.get  # type: ignore[method-assign]  # each record asks
    assert serve({"Records": records}, other) == {"batchItemFailures": [{"itemIdentifier": "12"}]}
    assert _take_looks(instance) == [Look(ranges=(_range(key, 0, 1),))]


def test_look_is_tried_again_when_a_repair_can_be_handed_over_to_nobody(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    zone_of(instance, 2).is_down = True

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    other = another_instance(instance, repair_queue=Intercepted(instance.stores.repair_queue, send=refuse))
    message = encode_message(Look(ranges=(_range(key, 0, 1),)))
    assert serve(_queued(message), other) == {"batchItemFailures": [{"itemIdentifier": "0"}]}


def test_stream_record_of_a_deleted_item_is_passed_over(instance: Instance, key: PartitionKey) -> None:
    record = _streamed(instance, key)
    del record["dynamodb"]["NewImage"]
    assert serve({"Records": [record]}, instance) == {"batchItemFailures": []}


def test_repair_without_a_good_copy_fails_for_the_dead_letters_and_changes_nothing(
    instance: Instance, key: PartitionKey
) -> None:
    _miss(instance, "a")
    [repair] = _due(instance, key)
    for zone in (0, 1):
        zone_of(instance, zone).segments[repair.segment_id] = b"rot"
    with pytest.raises(PenstockError, match="no zone has a good copy") as caught:
        repair_segment(another_instance(instance), repair)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert serve(_queued(encode_message(repair)), instance)["batchItemFailures"]
    assert repair.segment_id not in zone_of(instance, 2).segments
    assert _zones(instance, key) == [0b011]


@pytest.mark.parametrize("to", [ZoneStatus.TAKEN_OUT, ZoneStatus.OUT_OF_SYNC])
def test_zone_that_is_out_is_not_repaired_into(instance: Instance, key: PartitionKey, to: ZoneStatus) -> None:
    _miss(instance, "a")
    [repair] = _due(instance, key)
    _move_out(instance, 2, Mover.OPERATOR if to is ZoneStatus.TAKEN_OUT else Mover.APPENDER, to)
    counts: Counter[str] = Counter()
    assert repair_segment(counted_instance(another_instance(instance), counts), repair) == RepairResult()
    assert not any(name.startswith("zone.") for name in counts)
    assert repair.segment_id not in zone_of(instance, 2).segments
    assert _zones(instance, key) == [0b011]


def test_bits_are_set_for_the_zones_that_could_be_repaired(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    [repair] = _due(instance, key)
    both = replace(repair, zones=frozenset(instance.stores.zone_names))
    zone_of(instance, 1).is_down = True
    with pytest.raises(PenstockError):
        repair_segment(another_instance(instance), both)
    assert _zones(instance, key) == [0b111]


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("place", ["zone.get_whole", "zone.put", "log.mark_stored"])
def test_repair_is_completed_by_the_next_when_it_is_killed(
    instance: Instance, key: PartitionKey, place: str, is_applied: bool
) -> None:
    _miss(instance, "a")
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
    assert _zones(instance, key) == [0b111]
    assert _is_whole(instance)


def test_two_that_repair_the_same_at_once_agree(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
    [repair] = _due(instance, key)

    def after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        repair_segment(another_instance(instance), repair)
        return original(*arguments)

    racing = another_instance(instance, zones=[Intercepted(zone, put=after_another) for zone in instance.stores.zones])
    assert repair_segment(racing, repair).marked == 1
    assert _zones(instance, key) == [0b111]
    assert _is_whole(instance)


def test_repair_of_a_deleted_topic_ends(instance: Instance, key: PartitionKey) -> None:
    _miss(instance, "a")
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
    [repair] = _sent(instance)
    assert repair == Repair(segment_id=segment_id, zones=frozenset((instance.stores.zone_names[0],)))
    serve(_queued(encode_message(repair)), instance)
    assert _is_whole(instance)


def test_bad_copy_is_reported_once_a_minute(instance: Instance, key: PartitionKey, clock: SteppedClock) -> None:
    send(instance, "orders", "a", acks=Acks.ALL)
    _harm(instance, 0)
    for number in (1, 2):
        for _ in range(3):
            # A fresh instance does not avoid the slow zone yet; the throttle is the one instance's.
            fresh = replace(another_instance(instance), repair_throttle=instance.repair_throttle)
            assert read_all(fresh, "orders") == [(0, "a")]
        assert len(_sent(instance)) == number
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
    _move_out(instance, 0)
    other = another_instance(instance)
    other.zone_cache.read_through()
    assert read_all(other, "orders") == [(0, "a")]
    assert _sent(instance) == []
