"""Zone recovery: zones come back, catch up, and are in sync only when they hold everything, whatever dies meanwhile."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, SegmentId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.zones.zone_state import BARRIER_MS, REMEMBERED_MS_MAX, Acks, ZoneStatus
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.segments.move_zone import move_zone_by_operator
from penstock_service.topics.alter_topic import truncate
from tests.service.repair.zone_recovery import BUDGET_MS, MINUTE_MS, holds_everything, named_segments, run, status
from tests.support.service import (
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    new_topic,
    read_all,
    send,
    zone_of,
)


def test_recovery_reads_once_when_every_zone_is_in_sync(instance: Instance) -> None:
    new_topic(instance)
    reads: list[str] = []

    def get(original: Any) -> Any:
        reads.append("states")
        return original()

    def fail(*_arguments: Any) -> Any:
        raise AssertionError("nothing else is looked at")

    store = Intercepted(instance.stores.zone_states, get=get, get_pass=fail, save_pass=fail, change=fail)
    done = run(instance, zone_states=store, log=Intercepted(instance.stores.log, heads=fail, pages=fail))
    assert (list(done.readmitted), list(done.in_sync)) == ([], [])
    assert len(reads) <= 2


def test_zone_stays_out_while_it_does_not_answer(instance: Instance, topic: str) -> None:
    assert run(instance).readmitted == []
    assert status(instance, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_stays_out_while_what_is_put_does_not_come_back(instance: Instance, topic: str) -> None:
    zone_of(instance, 2).is_down = False

    def get(_original: Any, *_arguments: Any) -> bytes:
        return b"?"

    zones: list[Any] = [*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], get=get)]
    assert run(instance, zones=zones).readmitted == []
    assert status(instance, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_that_answers_again_is_copied_to_at_once_and_in_sync_after_the_barrier(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    zone_of(instance, 2).is_down = False
    first = run(instance)
    assert (first.readmitted, first.in_sync, first.progress.failures) == (["c"], [], 0)
    assert first.progress.segments == 3 * TAIL_ROLL_REFS
    assert status(instance, 2) is ZoneStatus.CATCHING_UP
    assert holds_everything(instance, 2)
    clock.time_ms += BARRIER_MS - 1
    assert run(instance).in_sync == []
    clock.time_ms += 1
    last = run(instance)
    assert (last.in_sync, last.progress.segments) == (["c"], 0)
    assert status(instance, 2) is ZoneStatus.IN_SYNC
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    assert len(read_all(another_instance(instance), topic)) == 1 + 3 * TAIL_ROLL_REFS


def test_segment_that_a_writer_with_older_states_left_out_is_found_before_the_zone_is_in_sync(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    """It remembers that c is out for 10 s after c catches up, and then takes all the time a function may."""
    stale = another_instance(instance)
    zone_of(instance, 2).is_down = False
    send(stale, topic, "remembers")
    run(instance)
    assert status(instance, 2) is ZoneStatus.CATCHING_UP
    clock.time_ms += REMEMBERED_MS_MAX - 1
    send(stale, topic, "late")
    assert not holds_everything(instance, 2)
    clock.time_ms += 1
    send(stale, topic, "knows now")
    clock.time_ms += MINUTE_MS
    assert run(instance).in_sync == ["c"]
    assert holds_everything(instance, 2)


def test_writers_put_to_a_zone_that_catches_up_and_all_does_not_wait_for_it(instance: Instance, topic: str) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    other = another_instance(instance)
    send(other, topic, "x", acks=Acks.ALL)
    assert holds_everything(instance, 2)
    zone_of(instance, 2).is_down = True
    send(other, topic, "y", acks=Acks.ALL)
    send(other, topic, "z", acks=Acks.ALL)
    assert status(instance, 2) is ZoneStatus.OUT_OF_SYNC


def test_zone_that_fails_again_while_it_catches_up_begins_anew(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    zone_of(instance, 2).is_down = True
    other = another_instance(instance)
    for _ in range(2):
        send(other, topic, "missed")
    zone_of(instance, 2).is_down = False
    assert run(instance).in_sync == [], "its time begins with its new state"
    clock.time_ms += MINUTE_MS
    assert run(instance).in_sync == ["c"]
    assert holds_everything(instance, 2)


def test_zone_is_not_in_sync_while_a_zone_that_may_have_what_it_lacks_does_not_answer(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    only_in_b = max(named_segments(instance))
    for zone in (0, 2):
        del zone_of(instance, zone).segments[only_in_b]
    zone_of(instance, 1).is_down = True
    failed = run(instance)
    assert (failed.in_sync, failed.progress.failures, failed.progress.lost) == ([], 1, 0)
    zone_of(instance, 1).is_down = False
    assert run(instance).in_sync == ["c"]
    assert only_in_b in zone_of(instance, 2).segments


@pytest.mark.parametrize("harm", ["missing", "bad"])
def test_zone_is_in_sync_without_what_no_zone_has_and_that_is_told(
    instance: Instance, clock: SteppedClock, topic: str, harm: str
) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    lost = sorted(named_segments(instance))[7]
    for zone in range(3):
        if harm == "missing" or zone == 2:
            del zone_of(instance, zone).segments[lost]
        else:
            zone_of(instance, zone).segments[lost] = b"\xff" * 90
    warm = another_instance(instance)
    done = recover_zones(warm, BUDGET_MS)
    assert (done.in_sync, done.progress.lost, done.progress.failures) == (["c"], 1, 0)
    assert (
        instance.stores.zone_states.get()
        .of(instance.stores.zone_names[2])
        .reason.endswith("but 1 refs whose segments no zone has")
    )
    assert named_segments(instance) - set(zone_of(instance, 2).segments) == {lost}
    counts, told = warm.telemetry.take()
    [facts] = [facts for name, facts in told if name == "segment_lost"]
    assert counts["segment_lost"] == 1
    assert facts["segment"] == lost.hex()
    topic_id = instance.topic_cache.read_through(topic).topic_id
    assert facts["partition"] == f"{topic_id}#0"
    [located] = [
        each
        for each in refs_of(instance.stores.log, PartitionKey(topic_id, Partition(0)), 0)
        if each.ref.segment_id == lost
    ]
    assert (facts["base_offset"], facts["end_offset"]) == (located.base_offset, located.end_offset)


def test_segment_is_not_reported_lost_when_it_was_truncated_meanwhile(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    key = PartitionKey(instance.topic_cache.read_through(topic).topic_id, Partition(0))
    gone = next(refs_of(instance.stores.log, key, 0)).ref.segment_id
    for zone in range(3):
        zone_of(instance, zone).segments.pop(gone, None)

    def get_whole(original: Any, segment_id: SegmentId) -> bytes | None:
        if segment_id == gone:
            truncate(another_instance(instance), topic, {0: 1})
        found: bytes | None = original(segment_id)
        return found

    zones: list[Any] = [Intercepted(zone, get_whole=get_whole) for zone in instance.stores.zones]
    done = run(instance, zones=zones)
    assert (done.in_sync, done.progress.lost, done.progress.failures) == (["c"], 0, 0)


def empty(instance: Instance, zone: int) -> None:
    """Its bucket is deleted with all that it held, and made anew under its name."""
    zone_of(instance, zone).segments.clear()


def test_zone_whose_bucket_was_made_anew_is_in_sync_only_when_it_holds_everything_again(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    """Refs of what was sent before c failed say that c has it."""
    assert any(segment in zone_of(instance, 2).segments for segment in named_segments(instance))
    empty(instance, 2)
    zone_of(instance, 2).is_down = False
    first = run(instance)
    assert first.progress.segments == 1 + 3 * TAIL_ROLL_REFS
    clock.time_ms += MINUTE_MS
    empty(instance, 2)  # again, after the refs have got their bits
    last = run(instance)
    assert (last.in_sync, last.progress.segments) == (["c"], 1 + 3 * TAIL_ROLL_REFS)
    assert holds_everything(instance, 2)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    assert len(read_all(another_instance(instance), topic)) == 1 + 3 * TAIL_ROLL_REFS


def test_recovery_believes_no_list_of_an_earlier_pass_when_its_instance_stays_warm(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    warm = another_instance(instance)
    zone_of(instance, 2).is_down = False
    recover_zones(warm, BUDGET_MS)
    clock.time_ms += MINUTE_MS
    empty(instance, 2)
    assert recover_zones(warm, BUDGET_MS).in_sync == ["c"]
    assert holds_everything(instance, 2)


def test_recovery_looks_over_a_zone_in_sync_when_an_operator_asks_for_it(
    instance: Instance, clock: SteppedClock
) -> None:
    name = new_topic(instance)
    for number in range(40):
        send(instance, name, str(number), acks=Acks.ALL)
    empty(instance, 1)
    move_zone_by_operator(instance, "b", ZoneStatus.CATCHING_UP, "somebody has emptied its bucket")
    assert status(instance, 1) is ZoneStatus.CATCHING_UP
    clock.time_ms += MINUTE_MS
    assert run(instance).in_sync == ["b"]
    zone_of(instance, 0).is_down = zone_of(instance, 2).is_down = True
    assert [value for _, value in read_all(another_instance(instance), name)] == [*map(str, range(40))]


def test_pass_that_finds_everything_in_place_reads_no_copy(instance: Instance, clock: SteppedClock, topic: str) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS
    counts: Counter[str] = Counter()
    done = recover_zones(counted_instance(instance, counts), BUDGET_MS)
    assert done.in_sync == ["c"]
    assert counts["zone.get_whole"] == counts["zone.get"] == counts["zone.put"] == 0
    assert 0 < counts["zone.list_keys"] <= 1 + 3 * TAIL_ROLL_REFS


def test_operator_may_take_a_zone_out_in_the_middle_of_its_pass(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    zone_of(instance, 2).is_down = False
    run(instance)
    clock.time_ms += MINUTE_MS

    def change(original: Any, old: Any, new: Any) -> None:
        move_zone_by_operator(another_instance(instance), "c", ZoneStatus.TAKEN_OUT, "stop")
        original(old, new)

    assert run(instance, zone_states=Intercepted(instance.stores.zone_states, change=change)).in_sync == []
    assert status(instance, 2) is ZoneStatus.TAKEN_OUT
    clock.time_ms += MINUTE_MS
    assert run(instance).in_sync == []
    move_zone_by_operator(another_instance(instance), "c", ZoneStatus.CATCHING_UP, "go on")
    clock.time_ms += MINUTE_MS
    assert run(instance).in_sync == ["c"]


def test_pass_goes_on_in_the_next_run_when_its_time_is_over(instance: Instance, clock: SteppedClock) -> None:
    for name in ("a-topic", "b-topic"):
        new_topic(instance, name, partitions=2)
    zone_of(instance, 1).is_down = True
    for number in range(100):
        for name in ("a-topic", "b-topic"):
            send(instance, name, str(number), partition=number % 2)
    zone_of(instance, 1).is_down = False
    runs = 0
    while status(instance, 1) is not ZoneStatus.IN_SYNC:
        other = another_instance(instance, log=Intercepted(instance.stores.log, mark_stored=_taking(clock, 1)))
        recover_zones(other, budget_ms=60)
        clock.time_ms += MINUTE_MS
        runs += 1
        assert runs < 20
    assert runs >= 3
    assert holds_everything(instance, 1)


def _taking(clock: SteppedClock, duration_ms: float) -> Callable[..., Any]:
    def call(original: Any, *arguments: Any) -> Any:
        clock.time_ms += duration_ms
        return original(*arguments)

    return call


def test_operator_is_refused_when_recovery_decides(instance: Instance, topic: str) -> None:
    with pytest.raises(PenstockError, match="by itself") as caught:
        move_zone_by_operator(instance, "c", ZoneStatus.CATCHING_UP, "")
    assert caught.value.code is ErrorCode.ZONE_STATE_CONFLICT


@pytest.mark.parametrize("holder", range(3))
def test_reader_finds_the_one_good_copy_whatever_the_bits_and_states_say(instance: Instance, holder: int) -> None:
    """Bits name all zones, or none that has it; the others were emptied, and the holder may even be taken out."""
    name = new_topic(instance)
    for number in range(20):
        send(instance, name, str(number), acks=Acks.ALL)
    late = zone_of(instance, holder)
    late.is_down = True
    send(instance, name, "unconfirmed there")
    late.is_down = False
    late.segments.update(zone_of(instance, (holder + 1) % 3).segments)
    for zone in range(3):
        if zone != holder:
            empty(instance, zone)
    move_zone_by_operator(instance, instance.stores.zone_names[holder], ZoneStatus.TAKEN_OUT, "read it last")
    reader = another_instance(instance)
    reader.zone_cache.read_through()
    assert [value for _, value in read_all(reader, name)] == [*map(str, range(20)), "unconfirmed there"]
