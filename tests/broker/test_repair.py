"""Repair from what heads and reads tell to whole copies and set bits, whatever fails on the way."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from handlers.replicate import serve
from penstock_broker.adapters.memory import MemoryRepairQueue
from penstock_broker.broker import Broker
from penstock_broker.produce import produce
from penstock_broker.repair_segment import Repaired, repair_segment
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, SegmentId
from penstock_core.index import roll_due
from penstock_core.items import head_item
from penstock_core.keys import PartitionKey
from penstock_core.limits import REPORT_INTERVAL_MS, REPORTS_REMEMBERED_MAX, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.repair import NamedRef, Repair, encode_repair, repairs_due
from penstock_core.zone_state import Mover, ZoneStatus, move
from tests.broker.setting import (
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_broker,
    entry,
    new_topic,
    read_all,
    refs_of,
    send,
    zone_of,
)


@pytest.fixture
def key(broker: Broker) -> PartitionKey:
    return broker.directory.find_partition(new_topic(broker), 0)[1]


def _miss(broker: Broker, *values: str, zone: int = 2) -> None:
    """Appends that the zone misses, each by an instance whose first failed put it is."""
    for value in values:
        zone_of(broker, zone).is_down = True
        send(another_instance(broker), "orders", value)
        zone_of(broker, zone).is_down = False


def _zones(broker: Broker, key: PartitionKey) -> list[int]:
    return [located.ref.zones for located in refs_of(broker, key)]


def _due(broker: Broker, key: PartitionKey) -> list[Repair]:
    refs = [NamedRef(key=key, located=located) for located in refs_of(broker, key)]
    return repairs_due(refs, broker.zone_names, 0b111)


def _streamed(broker: Broker, key: PartitionKey, number: str = "1") -> dict[str, Any]:
    """The stream's record of the head as it is now, as Lambda hands it over."""
    head = head_item(key, broker.log.heads([key])[key])
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


def _sent(broker: Broker) -> list[Repair]:
    assert isinstance(broker.repair_queue, MemoryRepairQueue)
    return broker.repair_queue.repairs


def _is_whole(broker: Broker) -> bool:
    return zone_of(broker, 0).segments == zone_of(broker, 1).segments == zone_of(broker, 2).segments


def _move_out(broker: Broker, zone: int, mover: Mover = Mover.OPERATOR, to: ZoneStatus = ZoneStatus.TAKEN_OUT) -> None:
    before = broker.zone_states.get()
    name = broker.zone_names[zone]
    broker.zone_states.change(
        before, move(before, broker.zone_names, name, to, mover, now_ms=broker.clock.now_ms(), reason="test")
    )


def test_stream_record_repairs_every_debt_of_the_tail(broker: Broker, key: PartitionKey) -> None:
    send(broker, "orders", "a")
    _miss(broker, "b", "c")
    _miss(broker, "d", zone=0)
    assert _zones(broker, key) == [0b111, 0b011, 0b011, 0b110]
    assert serve({"Records": [_streamed(broker, key)]}, another_instance(broker)) == {"batchItemFailures": []}
    assert _zones(broker, key) == [0b111] * 4
    assert _is_whole(broker)


def test_stream_records_that_show_the_same_debt_cost_one_repair(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    record = _streamed(broker, key)
    counts: Counter[str] = Counter()
    serve({"Records": [record] * 5}, counted_broker(broker, counts))
    assert (counts["zone.put"], counts["log.mark_stored"]) == (1, 1)


def test_stream_records_of_two_partitions_that_share_a_segment_mark_both(broker: Broker) -> None:
    topic = new_topic(broker, "payments", partitions=2)
    keys = [broker.directory.find_partition(topic, partition)[1] for partition in range(2)]
    zone_of(broker, 2).is_down = True
    produce(another_instance(broker), [entry(topic, number, batch("a")) for number in range(2)], Acks.QUORUM)
    zone_of(broker, 2).is_down = False
    records = [_streamed(broker, key, str(number)) for number, key in enumerate(keys)]
    assert serve({"Records": records}, another_instance(broker)) == {"batchItemFailures": []}
    assert [_zones(broker, key) for key in keys] == [[0b111], [0b111]]


def test_stream_record_passes_over_what_lies_below_the_log_start(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a", "b")
    broker.log.raise_log_start(key, Offset(1))
    [first, _] = refs_of(broker, key)
    for zone in range(3):  # as the sweep does
        zone_of(broker, zone).segments.pop(first.ref.segment_id, None)
    assert serve({"Records": [_streamed(broker, key)]}, another_instance(broker)) == {"batchItemFailures": []}
    assert _zones(broker, key) == [0b011, 0b111]
    assert _sent(broker) == []


@pytest.mark.parametrize("removal", ["truncation", "deletion that died", None])
def test_repair_of_a_segment_that_no_zone_has_fails_only_while_its_ref_stands(
    broker: Broker, key: PartitionKey, removal: str | None
) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)
    for zone in range(3):
        zone_of(broker, zone).segments.clear()
    if removal is None:
        with pytest.raises(PenstockError) as raised:
            repair_segment(broker, repair)
        assert raised.value.code is ErrorCode.CORRUPT_SEGMENT
        return
    if removal == "truncation":
        broker.log.raise_log_start(key, Offset(1))
    else:  # the name is gone, and the sweep takes the bytes; the head waits for retention
        broker.topics.delete(broker.directory.look_up("orders"), broker.clock.now_ms())
        assert key in broker.log.heads([key])
    assert repair_segment(broker, repair) == Repaired()
    assert broker.events.take()[0]["segment_lost"] == 0


def test_stream_record_of_a_ref_that_has_rolled_meanwhile_marks_it_in_its_page(
    broker: Broker, key: PartitionKey
) -> None:
    for number in range(TAIL_ROLL_REFS - 1):
        send(broker, "orders", str(number))
    _miss(broker, "last")
    head = broker.log.heads([key])[key]
    assert head.tail == ()
    [page] = broker.log.pages(key, Offset(0), 10)
    before = replace(head, tail_base=page.base_offset, tail=page.refs)
    assert roll_due(before) is not None
    [repair] = _due(broker, key)
    repair_segment(another_instance(broker), repair)
    assert _zones(broker, key) == [0b111] * TAIL_ROLL_REFS
    assert _is_whole(broker)


def test_repair_that_fails_is_handed_over_to_the_queue_and_done_from_there(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    zone_of(broker, 2).is_down = True
    instance = another_instance(broker)
    assert serve({"Records": [_streamed(broker, key)]}, instance) == {"batchItemFailures": []}
    [repair] = _sent(broker)
    message = encode_repair(repair)
    failed = serve(_queued("nonsense", message), instance)
    assert failed == {"batchItemFailures": [{"itemIdentifier": "0"}, {"itemIdentifier": "1"}]}
    zone_of(broker, 2).is_down = False
    assert serve(_queued(message), instance) == {"batchItemFailures": []}
    assert _zones(broker, key) == [0b111]
    assert _is_whole(broker)


def test_stream_goes_on_from_the_first_record_that_could_not_be_handed_over(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    first = _streamed(broker, key, "11")
    _miss(broker, "b")
    second = _streamed(broker, key, "12")

    def refuse(original: Callable[..., Any], repair: Repair) -> None:
        if repair.segment_id == refs_of(broker, key)[1].ref.segment_id:
            raise UNAVAILABLE
        original(repair)

    zone_of(broker, 2).is_down = True
    instance = another_instance(broker, repair_queue=Intercepted(broker.repair_queue, send=refuse))
    assert serve({"Records": [first, second]}, instance) == {"batchItemFailures": [{"itemIdentifier": "12"}]}
    assert [repair.segment_id for repair in _sent(broker)] == [refs_of(broker, key)[0].ref.segment_id]


def test_stream_record_of_a_deleted_item_is_passed_over(broker: Broker, key: PartitionKey) -> None:
    record = _streamed(broker, key)
    del record["dynamodb"]["NewImage"]
    assert serve({"Records": [record]}, broker) == {"batchItemFailures": []}


def test_repair_without_a_good_copy_fails_for_the_dead_letters_and_changes_nothing(
    broker: Broker, key: PartitionKey
) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)
    for zone in (0, 1):
        zone_of(broker, zone).segments[repair.segment_id] = b"rot"
    with pytest.raises(PenstockError, match="no zone has a good copy") as caught:
        repair_segment(another_instance(broker), repair)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT
    assert serve(_queued(encode_repair(repair)), broker)["batchItemFailures"]
    assert repair.segment_id not in zone_of(broker, 2).segments
    assert _zones(broker, key) == [0b011]


@pytest.mark.parametrize("to", [ZoneStatus.TAKEN_OUT, ZoneStatus.OUT_OF_SYNC])
def test_zone_that_is_out_is_not_repaired_into(broker: Broker, key: PartitionKey, to: ZoneStatus) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)
    _move_out(broker, 2, Mover.OPERATOR if to is ZoneStatus.TAKEN_OUT else Mover.APPENDER, to)
    counts: Counter[str] = Counter()
    assert repair_segment(counted_broker(another_instance(broker), counts), repair) == Repaired()
    assert not any(name.startswith("zone.") for name in counts)
    assert repair.segment_id not in zone_of(broker, 2).segments
    assert _zones(broker, key) == [0b011]


def test_bits_are_set_for_the_zones_that_could_be_repaired(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)
    both = replace(repair, zones=frozenset(broker.zone_names))
    zone_of(broker, 1).is_down = True
    with pytest.raises(PenstockError):
        repair_segment(another_instance(broker), both)
    assert _zones(broker, key) == [0b111]


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("place", ["zone.get_whole", "zone.put", "log.mark_stored"])
def test_repair_is_completed_by_the_next_when_it_is_killed(
    broker: Broker, key: PartitionKey, place: str, is_applied: bool
) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        if is_applied:
            original(*arguments)
        raise Killed

    port, method = place.split(".")
    dying = (
        another_instance(broker, zones=[Intercepted(zone, **{method: die}) for zone in broker.zones])
        if port == "zone"
        else another_instance(broker, log=Intercepted(broker.log, **{method: die}))
    )
    with pytest.raises(Killed):
        repair_segment(dying, repair)
    repair_segment(another_instance(broker), repair)
    assert _zones(broker, key) == [0b111]
    assert _is_whole(broker)


def test_two_that_repair_the_same_at_once_agree(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)

    def after_another(original: Callable[..., Any], *arguments: Any) -> Any:
        repair_segment(another_instance(broker), repair)
        return original(*arguments)

    racing = another_instance(broker, zones=[Intercepted(zone, put=after_another) for zone in broker.zones])
    assert repair_segment(racing, repair).marked == 1
    assert _zones(broker, key) == [0b111]
    assert _is_whole(broker)


def test_repair_of_a_deleted_topic_ends(broker: Broker, key: PartitionKey) -> None:
    _miss(broker, "a")
    [repair] = _due(broker, key)
    broker.log.delete_head(key)
    assert repair_segment(another_instance(broker), repair).marked == 0


def _harm(broker: Broker, zone: int) -> SegmentId:
    [segment_id] = zone_of(broker, 0).segments
    data = bytearray(zone_of(broker, zone).segments[segment_id])
    data[65] ^= 1
    zone_of(broker, zone).segments[segment_id] = bytes(data)
    return segment_id


@pytest.mark.parametrize("is_lost", [False, True])
def test_read_that_meets_a_bad_copy_has_it_healed(broker: Broker, key: PartitionKey, is_lost: bool) -> None:
    send(broker, "orders", "a", acks=Acks.ALL)
    segment_id = _harm(broker, 0)
    if is_lost:
        del zone_of(broker, 0).segments[segment_id]
    assert read_all(broker, "orders") == [(0, "a")]
    [repair] = _sent(broker)
    assert repair == Repair(segment_id=segment_id, zones=frozenset((broker.zone_names[0],)))
    serve(_queued(encode_repair(repair)), broker)
    assert _is_whole(broker)


def test_bad_copy_is_reported_once_a_minute(broker: Broker, key: PartitionKey, clock: SteppedClock) -> None:
    send(broker, "orders", "a", acks=Acks.ALL)
    _harm(broker, 0)
    for number in (1, 2):
        for _ in range(3):
            fresh = another_instance(broker, reports=broker.reports)  # which does not avoid the slow zone yet
            assert read_all(fresh, "orders") == [(0, "a")]
        assert len(_sent(broker)) == number
        clock.time_ms += REPORT_INTERVAL_MS


def test_reports_are_bounded(broker: Broker, clock: SteppedClock) -> None:
    zone = broker.zone_names[0]
    copies = [SegmentId(number.to_bytes(16, "big")) for number in range(REPORTS_REMEMBERED_MAX + 1)]
    taken = [broker.reports.take(segment_id, zone, 0.0) for segment_id in copies]
    assert taken == [True] * REPORTS_REMEMBERED_MAX + [False]
    assert broker.reports.take(copies[-1], zone, float(REPORT_INTERVAL_MS))


def test_read_is_not_harmed_by_a_queue_that_does_not_answer(broker: Broker, key: PartitionKey) -> None:
    send(broker, "orders", "a", acks=Acks.ALL)
    _harm(broker, 0)

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    failing = another_instance(broker, repair_queue=Intercepted(broker.repair_queue, send=refuse))
    assert read_all(failing, "orders") == [(0, "a")]
    assert failing.events.take()[0]["copy_report_failed"] == 1


def test_zone_that_does_not_answer_or_is_out_is_not_reported(broker: Broker, key: PartitionKey) -> None:
    send(broker, "orders", "a", acks=Acks.ALL)
    zone_of(broker, 0).is_down = True
    assert read_all(another_instance(broker), "orders") == [(0, "a")]
    zone_of(broker, 0).is_down = False
    _harm(broker, 0)
    _move_out(broker, 0)
    instance = another_instance(broker)
    instance.zone_directory.look_up()
    assert read_all(instance, "orders") == [(0, "a")]
    assert _sent(broker) == []
