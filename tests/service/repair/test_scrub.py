"""Scrub finds and heals what nobody has met yet, in portions, whatever stops it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import Acks, Mover, ZoneStatus, move
from penstock_service.adapters.memory.messages import MemoryRepairQueue
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.repair.scrub import JOB, ScrubResult, scrub
from penstock_service.topics.alter_topic import truncate
from tests.support.service import (
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    new_topic,
    refs_of,
    send,
    with_stores,
    zone_of,
)

FOR_EVER = 1e12
EVERYTHING = 2**40
SEGMENTS = 2 * TAIL_ROLL_REFS + 3


@pytest.fixture
def key(instance: Instance) -> PartitionKey:
    """A partition of two pages and a tail, every segment in every zone."""
    new_topic(instance, "orders")
    for number in range(SEGMENTS):
        send(instance, "orders", str(number), acks=Acks.ALL)
    return instance.topic_cache.get_partition("orders", 0)[1]


def _run(instance: Instance, budget_ms: float = FOR_EVER, budget_bytes: int = EVERYTHING) -> ScrubResult:
    return scrub(another_instance(instance), budget_ms=budget_ms, budget_bytes=budget_bytes)


def _harm(instance: Instance, key: PartitionKey) -> None:
    """Losses and flips all over the index, one good copy left of each segment."""
    for index, located in enumerate(refs_of(instance, key)):
        segments = zone_of(instance, index % 3).segments
        data = bytearray(segments.pop(located.ref.segment_id))
        if index % 2:
            data[70] ^= 1
            segments[located.ref.segment_id] = bytes(data)


def _is_whole(instance: Instance) -> bool:
    return zone_of(instance, 0).segments == zone_of(instance, 1).segments == zone_of(instance, 2).segments


def test_scrub_reads_every_copy_and_writes_nothing_when_all_is_whole(instance: Instance, key: PartitionKey) -> None:
    counts: Counter[str] = Counter()
    done = scrub(counted_instance(instance, counts), budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    size = sum(map(len, zone_of(instance, 0).segments.values()))
    assert done == ScrubResult(refs=SEGMENTS, segments=SEGMENTS, bytes=3 * size, is_finished=True)
    assert counts["zone.get_whole"] == 3 * SEGMENTS
    assert not counts["zone.put"] + counts["zone.overwrite"] + counts["log.mark_stored"]


def test_scrub_heals_lost_and_rotten_copies_in_pages_and_tail(instance: Instance, key: PartitionKey) -> None:
    whole = dict(zone_of(instance, 0).segments)
    _harm(instance, key)
    done = _run(instance)
    assert (done.copied, done.healed, done.failures) == ((SEGMENTS + 1) // 2, SEGMENTS // 2, 0)
    assert _is_whole(instance)
    assert zone_of(instance, 0).segments == whole


def test_scrub_sets_the_bits_that_are_owed(instance: Instance, key: PartitionKey) -> None:
    zone_of(instance, 2).is_down = True
    send(another_instance(instance), "orders", "missed")
    zone_of(instance, 2).is_down = False
    assert refs_of(instance, key)[-1].ref.zones == 0b011
    assert (_run(instance).marked, _run(instance).marked) == (1, 0)
    assert {located.ref.zones for located in refs_of(instance, key)} == {0b111}
    assert _is_whole(instance)


def test_scrub_reads_a_segment_of_many_partitions_once(instance: Instance) -> None:
    new_topic(instance, "wide", partitions=5)
    produce(instance, [entry("wide", number, batch("x")) for number in range(5)], Acks.ALL)
    done = _run(instance)
    assert (done.refs, done.segments) == (5, 1)


@pytest.mark.parametrize("budget", [{"budget_bytes": 1}, {"budget_ms": -1}])
def test_scrub_goes_on_where_its_budget_ended(instance: Instance, key: PartitionKey, budget: dict[str, Any]) -> None:
    _harm(instance, key)
    for _ in range(SEGMENTS):
        done = _run(instance, **budget)
        assert (done.refs, done.is_finished) == (1, False)
    assert _is_whole(instance)
    assert _run(instance) == ScrubResult(is_finished=True)
    assert instance.stores.cursors.get(JOB) is None
    assert _run(instance).refs == SEGMENTS


def test_scrub_goes_on_although_the_topic_at_its_cursor_is_gone(instance: Instance, key: PartitionKey) -> None:
    instance.stores.cursors.put(JOB, "lost#3#500")
    assert _run(instance).refs == SEGMENTS
    instance.stores.cursors.put(JOB, "zebra#0#0")
    assert _run(instance) == ScrubResult(is_finished=True)


def test_scrub_counts_and_hands_over_a_segment_when_it_cannot_heal_it(instance: Instance, key: PartitionKey) -> None:
    refs = refs_of(instance, key)
    lost = refs[5].ref.segment_id
    for zone in range(3):
        zone_of(instance, zone).segments[lost] = b"rot"
    another = another_instance(instance)
    done = scrub(another, budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    assert (done.refs, done.failures, done.is_finished) == (SEGMENTS, 1, True)
    assert isinstance(instance.stores.repair_queue, MemoryRepairQueue)
    assert [repair.segment_id for repair in instance.stores.repair_queue.repairs] == [lost]
    counts, told = another.telemetry.take()
    assert (counts["scrub_failed"], counts["segment_lost"]) == (1, 1)
    [facts] = [facts for name, facts in told if name == "segment_lost"]
    assert (facts["segment"], facts["partition"]) == (lost.hex(), str(key))
    assert (facts["base_offset"], facts["end_offset"]) == (refs[5].base_offset, refs[5].end_offset)


def test_scrub_does_not_call_lost_what_a_silent_zone_may_have(instance: Instance, key: PartitionKey) -> None:
    lost = refs_of(instance, key)[5].ref.segment_id
    for zone in range(2):
        del zone_of(instance, zone).segments[lost]
    zone_of(instance, 2).is_down = True
    another = another_instance(instance)
    assert scrub(another, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == SEGMENTS
    assert another.telemetry.take()[0]["segment_lost"] == 0


def test_scrub_passes_over_a_ref_when_it_was_removed_meanwhile(instance: Instance, key: PartitionKey) -> None:
    gone = refs_of(instance, key)[0].ref.segment_id

    def get_whole(original: Any, segment_id: SegmentId) -> bytes | None:
        if segment_id == gone:
            truncate(another_instance(instance), "orders", {0: 1})
        found: bytes | None = original(segment_id)
        return found

    for zone in range(3):
        del zone_of(instance, zone).segments[gone]
    zones: list[Any] = [Intercepted(zone, get_whole=get_whole) for zone in instance.stores.zones]
    another = another_instance(instance, zones=zones)
    assert scrub(another, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == 0
    assert another.telemetry.take()[0]["segment_lost"] == 0
    assert isinstance(instance.stores.repair_queue, MemoryRepairQueue)
    assert instance.stores.repair_queue.repairs == []


def test_scrub_tells_of_a_segment_that_is_not_what_its_ref_says(instance: Instance, key: PartitionKey) -> None:
    refs = refs_of(instance, key)
    send(instance, "orders", "a", "b", acks=Acks.ALL)
    other = zone_of(instance, 0).segments[refs_of(instance, key)[-1].ref.segment_id]
    for zone in range(3):
        zone_of(instance, zone).segments[refs[2].ref.segment_id] = other
    another = another_instance(instance)
    assert scrub(another, budget_ms=FOR_EVER, budget_bytes=EVERYTHING).failures == 1
    assert another.telemetry.take()[0]["ref_not_in_segment"] == 1


def test_scrub_leaves_a_zone_alone_that_is_out(instance: Instance, key: PartitionKey) -> None:
    _harm(instance, key)
    before = instance.stores.zone_states.get()
    taken = move(
        before,
        instance.stores.zone_names,
        instance.stores.zone_names[0],
        ZoneStatus.TAKEN_OUT,
        Mover.OPERATOR,
        now_ms=instance.clock.now_ms(),
        reason="test",
    )
    instance.stores.zone_states.change(before, taken)
    held = dict(zone_of(instance, 0).segments)
    assert _run(instance).failures == 0
    assert zone_of(instance, 0).segments == held
    assert zone_of(instance, 1).segments == zone_of(instance, 2).segments


@pytest.mark.parametrize("method", ["get_whole", "put", "overwrite"])
@pytest.mark.parametrize("after", [1, 7, 11])
def test_scrub_is_completed_by_the_next_when_it_is_killed(
    instance: Instance, key: PartitionKey, method: str, after: int
) -> None:
    _harm(instance, key)
    calls = Counter[str]()

    def die(original: Callable[..., Any], *arguments: Any) -> Any:
        calls[method] += 1
        if calls[method] == after:
            raise Killed
        return original(*arguments)

    zones = [Intercepted(zone, **{method: die}) for zone in instance.stores.zones]
    with pytest.raises(Killed):
        scrub(another_instance(instance, zones=zones), budget_ms=FOR_EVER, budget_bytes=EVERYTHING)
    _run(instance)
    assert _is_whole(instance)


def test_scrub_ends_when_its_time_is_up(instance: Instance, key: PartitionKey, clock: SteppedClock) -> None:
    def slow(original: Callable[..., Any], *arguments: Any) -> Any:
        clock.time_ms += 100
        return original(*arguments)

    zones = [Intercepted(instance.stores.zones[0], get_whole=slow), *instance.stores.zones[1:]]
    done = scrub(with_stores(another_instance(instance), zones=zones), budget_ms=500, budget_bytes=EVERYTHING)
    assert done.refs == 5
