"""What `replicate` does with records of the stream and with looks: one message for many appends."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import LOOK_MS_MAX, REPAIR_STREAM_LATE_MS, TAIL_ROLL_REFS
from penstock_core.log.repair import Look, OwedRange, encode_message
from penstock_core.log.roll import is_roll_due
from penstock_core.storage.head_item import head_item
from penstock_core.zones.zone_state import Acks, ZoneStatus
from penstock_handlers.replicate import serve
from penstock_service.adapters.memory.messages import MemoryRepairQueue
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.service.repair.owed_copies import is_whole, miss, move_out, queued, sent, zones
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    new_topic,
    refs_of,
    send,
    zone_of,
)


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
    assert serve(queued(*map(encode_message, looks)), instance) == {"batchItemFailures": []}


def _put_late(instance: Instance, *values: str) -> None:
    """Appends whose third put arrives after the append."""
    for value in values:
        miss(instance, value)
        zone_of(instance, 2).segments.update(zone_of(instance, 0).segments)


def _range(key: PartitionKey, start_offset: int, end_offset: int) -> OwedRange:
    return OwedRange(key=key, start_offset=Offset(start_offset), end_offset=Offset(end_offset))


def test_stream_record_repairs_every_debt_of_the_tail(instance: Instance, key: PartitionKey) -> None:
    send(instance, "orders", "a")
    miss(instance, "b", "c")
    miss(instance, "d", zone=0)
    assert zones(instance, key) == [0b111, 0b011, 0b011, 0b110]
    _stream_and_look(another_instance(instance), _streamed(instance, key))
    assert zones(instance, key) == [0b111] * 4
    assert is_whole(instance)


def test_stream_that_is_behind_is_told_once_for_each_batch(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    record = _streamed(instance, key)
    record["dynamodb"]["ApproximateCreationDateTime"] = instance.clock.now_ms() / 1_000
    instance.clock.sleep_ms(REPAIR_STREAM_LATE_MS)
    told = []
    for _ in range(2):
        assert serve({"Records": [record] * 3}, instance) == {"batchItemFailures": []}
        _, entries = instance.telemetry.take()
        told.append([facts["age_ms"] for name, facts in entries if name == "repair_stream_late"])
        instance.clock.sleep_ms(1_000)
    assert told == [[], [REPAIR_STREAM_LATE_MS + 1_000]]


def test_stream_records_that_show_the_same_debt_cost_one_repair(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    record = _streamed(instance, key)
    counts: Counter[str] = Counter()
    _stream_and_look(counted_instance(instance, counts), *[record] * 5)
    assert (counts["zone.put"], counts["log.mark_stored"]) == (1, 1)


def test_stream_touches_no_segment_and_no_head(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a", "b")
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
    assert (counts["zone.put"], counts["zone.get_whole"], counts["log.mark_stored"]) == (0, 100, 1)
    assert zones(instance, key) == [0b111] * 100
    assert sent(instance) == []


def test_look_ends_where_it_is_told_and_reads_no_copy_of_a_ref_that_owes_nothing(
    instance: Instance, key: PartitionKey
) -> None:
    miss(instance, "a")
    send(instance, "orders", "whole")
    miss(instance, "b", "too new")
    counts: Counter[str] = Counter()
    look = Look(ranges=(_range(key, 0, 3),))
    assert serve(queued(encode_message(look)), counted_instance(instance, counts)) == {"batchItemFailures": []}
    assert zones(instance, key) == [0b111, 0b111, 0b111, 0b011]
    assert counts["zone.put"] == 2


def test_look_that_runs_out_of_time_sends_the_rest_as_another(
    instance: Instance, key: PartitionKey, clock: SteppedClock
) -> None:
    miss(instance, *"abc")

    def take_long(original: Callable[..., Any], *arguments: Any) -> Any:
        clock.time_ms += LOOK_MS_MAX
        return original(*arguments)

    slow = [Intercepted(zone, get_whole=take_long) for zone in instance.stores.zones]
    look = Look(ranges=(_range(key, 0, 3),))
    assert serve(queued(encode_message(look)), another_instance(instance, zones=slow)) == {"batchItemFailures": []}
    assert zones(instance, key) == [0b111, 0b011, 0b011]
    [rest] = _take_looks(instance)
    assert rest == Look(ranges=(_range(key, 1, 3),))
    serve(queued(encode_message(rest)), instance)
    assert is_whole(instance)


def test_look_at_a_deleted_topic_or_while_the_zone_is_out_ends(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    message = encode_message(Look(ranges=(_range(key, 0, 1),)))
    move_out(instance, 2)
    counts: Counter[str] = Counter()
    assert serve(queued(message), counted_instance(instance, counts)) == {"batchItemFailures": []}
    assert counts == {"zone_states.get": 1, "log.heads": 1}
    move_out(instance, 2, to=ZoneStatus.CATCHING_UP)
    instance.stores.log.delete_head(key)
    assert serve(queued(message), another_instance(instance)) == {"batchItemFailures": []}
    assert sent(instance) == []


def test_stream_records_of_two_partitions_that_share_a_segment_mark_both(instance: Instance) -> None:
    topic = new_topic(instance, "payments", partitions=2)
    keys = [instance.topic_cache.get_partition(topic, partition)[1] for partition in range(2)]
    zone_of(instance, 2).is_down = True
    produce(another_instance(instance), [entry(topic, number, batch("a")) for number in range(2)], Acks.QUORUM)
    zone_of(instance, 2).is_down = False
    records = [_streamed(instance, key, str(number)) for number, key in enumerate(keys)]
    counts: Counter[str] = Counter()
    _stream_and_look(counted_instance(instance, counts), *records)
    assert [zones(instance, key) for key in keys] == [[0b111], [0b111]]
    assert counts["zone.put"] == 1


def test_stream_record_passes_over_what_lies_below_the_log_start(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a", "b")
    instance.stores.log.raise_log_start(key, Offset(1))
    [first, _] = refs_of(instance, key)
    for zone in range(3):  # as the sweep does
        zone_of(instance, zone).segments.pop(first.ref.segment_id, None)
    _stream_and_look(another_instance(instance), _streamed(instance, key))
    assert zones(instance, key) == [0b011, 0b111]
    assert sent(instance) == []


def test_look_finds_a_ref_that_has_rolled_meanwhile_in_its_page(instance: Instance, key: PartitionKey) -> None:
    for number in range(TAIL_ROLL_REFS - 1):
        send(instance, "orders", str(number))
    miss(instance, "last")
    head = instance.stores.log.heads([key])[key]
    assert head.tail == ()
    [page] = instance.stores.log.pages(key, Offset(0), 10)
    before = replace(head, tail_base=page.base_offset, tail=page.refs)
    assert is_roll_due(before)
    look = Look(ranges=(_range(key, TAIL_ROLL_REFS - 1, TAIL_ROLL_REFS),))
    assert serve(queued(encode_message(look)), another_instance(instance)) == {"batchItemFailures": []}
    assert zones(instance, key) == [0b111] * TAIL_ROLL_REFS
    assert is_whole(instance)


def test_repair_that_fails_is_handed_over_to_the_queue_and_done_from_there(
    instance: Instance, key: PartitionKey
) -> None:
    miss(instance, "a")
    zone_of(instance, 2).is_down = True
    other = another_instance(instance)
    _stream_and_look(other, _streamed(instance, key))
    [repair] = sent(instance)
    message = encode_message(repair)
    failed = serve(queued("nonsense", message), other)
    assert failed == {"batchItemFailures": [{"itemIdentifier": "0"}, {"itemIdentifier": "1"}]}
    zone_of(instance, 2).is_down = False
    assert serve(queued(message), other) == {"batchItemFailures": []}
    assert zones(instance, key) == [0b111]
    assert is_whole(instance)


def test_stream_comes_again_when_the_queue_takes_no_look(instance: Instance, key: PartitionKey) -> None:
    miss(instance, "a")
    records = [_streamed(instance, key, number) for number in ("11", "12")]

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    other = another_instance(instance, repair_queue=Intercepted(instance.stores.repair_queue, send=refuse))
    assert serve({"Records": records}, other) == {"batchItemFailures": [{"itemIdentifier": "11"}]}


def test_stream_goes_on_from_a_record_that_fails_and_tells_of_those_before(
    instance: Instance, key: PartitionKey
) -> None:
    miss(instance, "a")
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
    miss(instance, "a")
    zone_of(instance, 2).is_down = True

    def refuse(*_: Any) -> None:
        raise UNAVAILABLE

    other = another_instance(instance, repair_queue=Intercepted(instance.stores.repair_queue, send=refuse))
    message = encode_message(Look(ranges=(_range(key, 0, 1),)))
    assert serve(queued(message), other) == {"batchItemFailures": [{"itemIdentifier": "0"}]}


def test_stream_record_of_a_deleted_item_is_passed_over(instance: Instance, key: PartitionKey) -> None:
    record = _streamed(instance, key)
    del record["dynamodb"]["NewImage"]
    assert serve({"Records": [record]}, instance) == {"batchItemFailures": []}
