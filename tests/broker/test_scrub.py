"""Scrub finds and heals what nobody has met yet, in portions, whatever stops it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.adapters.memory import MemoryRepairQueue
from penstock_broker.broker import Broker
from penstock_broker.produce import produce
from penstock_broker.scrub import JOB, Scrubbed, scrub
from penstock_broker.truncate import truncate
from penstock_core.ids import SegmentId
from penstock_core.keys import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.zone_state import Mover, ZoneStatus, move
from tests.broker.setting import (
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_broker,
    entry,
    new_topic,
    refs_of,
    send,
    zone_of,
)

FOR_EVER = 1e12
EVERYTHING = 2**40
SEGMENTS = 2 * TAIL_ROLL_REFS + 3


@pytest.fixture
def key(broker: Broker) -> PartitionKey:
    """A partition of two pages and a tail, every segment in every zone."""
    new_topic(broker, "orders")
    for number in range(SEGMENTS):
        send(broker, "orders", str(number), acks=Acks.ALL)
    return broker.directory.find_partition("orders", 0)[1]


def _run(broker: Broker, budget_ms: float = FOR_EVER, budget_bytes: int = EVERYTHING) -> Scrubbed:
    return scrub(another_instance(broker), budget_ms=budget_ms, budget_bytes=budget_bytes)


def _harm(broker: Broker, key: PartitionKey) -> None:
    """Losses and flips all over the index, one good copy left of each segment."""
    for index, located in enumerate(refs_of(broker, key)):
        segments = zone_of(broker, index % 3).segments
        data = bytearray(segments.pop(located.ref.segment_id))
        if index % 2:
            data[70] ^= 1
            segments[located.ref.segment_id] = bytes(data)


def _is_whole(broker: Broker) -> bool:
    return zone_of(broker, 0).segments == zone_of(broker, 1).segments == zone_of(broker, 2).segments


def test_scrub_of_what_is_whole_reads_every_copy_and_writes_nothing(broker: Broker, key: PartitionKey) -> None:
    counts: Counter[str] = Counter()
    done = scrub(counted_broker(broker, counts), budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    size = sum(map(len, zone_of(broker, 0).segments.values()))
    assert done == Scrubbed(refs=SEGMENTS, segments=SEGMENTS, bytes=3 * size, is_finished=True)
    assert counts["zone.get_whole"] == 3 * SEGMENTS
    assert not counts["zone.put"] + counts["zone.overwrite"] + counts["log.mark_stored"]


def test_scrub_heals_lost_and_rotten_copies_in_pages_and_tail(broker: Broker, key: PartitionKey) -> None:
    whole = dict(zone_of(broker, 0).segments)
    _harm(broker, key)
    done = _run(broker)
    assert (done.copied, done.healed, done.failures) == ((SEGMENTS + 1) // 2, SEGMENTS // 2, 0)
    assert _is_whole(broker)
    assert zone_of(broker, 0).segments == whole


def test_scrub_sets_the_bits_that_are_owed(broker: Broker, key: PartitionKey) -> None:
    zone_of(broker, 2).is_down = True
    send(another_instance(broker), "orders", "missed")
    zone_of(broker, 2).is_down = False
    assert refs_of(broker, key)[-1].ref.zones == 0b011
    assert (_run(broker).marked, _run(broker).marked) == (1, 0)
    assert {located.ref.zones for located in refs_of(broker, key)} == {0b111}
    assert _is_whole(broker)


def test_scrub_reads_a_segment_of_many_partitions_once(broker: Broker) -> None:
    new_topic(broker, "wide", partitions=5)
    produce(broker, [entry("wide", number, batch("x")) for number in range(5)], Acks.ALL)
    done = _run(broker)
    assert (done.refs, done.segments) == (5, 1)


@pytest.mark.parametrize("budget", [{"budget_bytes": 1}, {"budget_ms": -1}])
def test_scrub_goes_on_where_its_budget_ended(broker: Broker, key: PartitionKey, budget: dict[str, Any]) -> None:
    _harm(broker, key)
    for _ in range(SEGMENTS):
        done = _run(broker, **budget)
        assert (done.refs, done.is_finished) == (1, False)
    assert _is_whole(broker)
    assert _run(broker) == Scrubbed(is_finished=True)
    assert broker.cursors.get(JOB) is None
    assert _run(broker).refs == SEGMENTS


def test_scrub_goes_on_although_the_topic_at_its_cursor_is_gone(broker: Broker, key: PartitionKey) -> None:
    broker.cursors.put(JOB, "lost#3#500")
    assert _run(broker).refs == SEGMENTS
    broker.cursors.put(JOB, "zebra#0#0")
    assert _run(broker) == Scrubbed(is_finished=True)


def test_scrub_counts_hands_over_and_passes_what_it_cannot_heal(broker: Broker, key: PartitionKey) -> None:
    refs = refs_of(broker, key)
    lost = refs[5].ref.segment_id
    for zone in range(3):
        zone_of(broker, zone).segments[lost] = b"rot"
    instance = another_instance(broker)
    done = scrub(instance, budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    assert (done.refs, done.failures, done.is_finished) == (SEGMENTS, 1, True)
    assert isinstance(broker.repair_queue, MemoryRepairQueue)
    assert [repair.segment_id for repair in broker.repair_queue.repairs] == [lost]
    counts, told = instance.events.take()
    assert (counts["scrub_failed"], counts["segment_lost"]) == (1, 1)
    [facts] = [facts for name, facts in told if name == "segment_lost"]
    assert (facts["segment"], facts["partition"]) == (lost.hex(), str(key))
    assert (facts["base_offset"], facts["end_offset"]) == (refs[5].base_offset, refs[5].end_offset)


def test_scrub_does_not_call_lost_what_a_silent_zone_may_have(broker: Broker, key: PartitionKey) -> None:
    lost = refs_of(broker, key)[5].ref.segment_id
    for zone in range(2):
        del zone_of(broker, zone).segments[lost]
    zone_of(broker, 2).is_down = True
    instance = another_instance(broker)
    assert scrub(instance, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == SEGMENTS
    assert instance.events.take()[0]["segment_lost"] == 0


def test_scrub_passes_over_what_was_removed_while_it_looked(broker: Broker, key: PartitionKey) -> None:
    gone = refs_of(broker, key)[0].ref.segment_id

    def get_whole(original: Any, segment_id: SegmentId) -> bytes | None:
        if segment_id == gone:
            truncate(another_instance(broker), "orders", {0: 1})
        found: bytes | None = original(segment_id)
        return found

    for zone in range(3):
        del zone_of(broker, zone).segments[gone]
    zones: list[Any] = [Intercepted(zone, get_whole=get_whole) for zone in broker.zones]
    instance = another_instance(broker, zones=zones)
    assert scrub(instance, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == 0
    assert instance.events.take()[0]["segment_lost"] == 0
    assert isinstance(broker.repair_queue, MemoryRepairQueue)
    assert broker.repair_queue.repairs == []


def test_scrub_tells_of_a_segment_that_is_not_what_its_ref_says(broker: Broker, key: PartitionKey) -> None:
    refs = refs_of(broker, key)
    send(broker, "orders", "a", "b", acks=Acks.ALL)
    other = zone_of(broker, 0).segments[refs_of(broker, key)[-1].ref.segment_id]
    for zone in range(3):
        zone_of(broker, zone).segments[refs[2].ref.segment_id] = other
    instance = another_instance(broker)
    assert scrub(instance, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == 1
    assert instance.events.take()[0]["ref_not_in_segment"] == 1


def test_scrub_leaves_a_zone_alone_that_is_out(broker: Broker, key: PartitionKey) -> None:
    _harm(broker, key)
    before = broker.zone_states.get()
    taken = move(
        before,
        broker.zone_names,
        broker.zone_names[0],
        ZoneStatus.TAKEN_OUT,
        Mover.OPERATOR,
        now_ms=broker.clock.now_ms(),
        reason="test",
    )
    broker.zone_states.change(before, taken)
    held = dict(zone_of(broker, 0).segments)
    assert _run(broker).failures == 0
    assert zone_of(broker, 0).segments == held
    assert zone_of(broker, 1).segments == zone_of(broker, 2).segments


@pytest.mark.parametrize("method", ["get_whole", "put", "overwrite"])
@pytest.mark.parametrize("after", [1, 7, 11])
def test_scrub_is_completed_by_the_next_when_it_is_killed(
    broker: Broker, key: PartitionKey, method: str, after: int
) -> None:
    _harm(broker, key)
    calls = Counter[str]()

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        calls[method] += 1
        if calls[method] == after:
            raise Killed
        return original(*arguments)

    zones = [Intercepted(zone, **{method: die}) for zone in broker.zones]
    with pytest.raises(Killed):
        scrub(another_instance(broker, zones=zones), budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    _run(broker)
    assert _is_whole(broker)


def test_scrubs_time_is_kept(broker: Broker, key: PartitionKey, clock: SteppedClock) -> None:
    def slow(original: Callable[..., Any], *arguments: Any) -> Any:
        clock.time_ms += 100
        return original(*arguments)

    zones = [Intercepted(broker.zones[0], get_whole=slow), *broker.zones[1:]]
    done = scrub(replace(another_instance(broker), zones=zones), budget_ms=500, budget_bytes=EVERYTHING)
    assert done.refs == 5
