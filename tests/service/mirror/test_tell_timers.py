"""Delayed records that wait go along with a mirror: each comes once, whatever is lost, doubled, late, or promoted."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TimerId
from penstock_core.limits import MIRROR_TELLING_MS_MAX, TIMER_PAST_MS_MAX
from penstock_core.log.timer import Timer, scheduled_id
from penstock_core.push.lane import LaneKey
from penstock_service.instance.instance import Instance
from penstock_service.mirror import tell_timers
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.promote_topic import promote_topic, resync_topic
from penstock_service.push.look import look
from penstock_service.timers.promote import promote_partition
from penstock_service.timers.promote_due import promote_due
from penstock_service.timers.scheduled import cancel_scheduled, list_scheduled
from tests.service.mirror.stages import Stages
from tests.service.mirror.test_move_topic import move, promote
from tests.service.timers.delays import FOREVER_MS, delay
from tests.support.push_deliveries import ID
from tests.support.refusals import refused
from tests.support.service import Intercepted, counted_instance, key_of, read_all, with_stores

HOUR_MS = 3_600_000


def stages_with(*values: str, partitions: int = 1) -> Stages:
    """Stages whose mirror knows that these records wait."""
    stages = Stages(partitions=partitions)
    stages.source.append("first")
    stages.run()
    for number, value in enumerate(values):
        delay_at(stages, value, number)
    tell(stages)
    return stages


def delay_at(stages: Stages, value: str, number: int, partition: int = 0, in_ms: int = HOUR_MS) -> None:
    due_ms = stages.clock.now_ms() + in_ms + number
    delay(stages.source.instance, "orders", due_ms, value, number=number, partition=partition)


def tell(stages: Stages) -> None:
    stages.clock.time_ms += 60_000
    look(stages.source.instance, budget_ms=10_000)
    stages.source.run(120_000)


def waits(instance: Instance, topic: str = "orders") -> list[int]:
    """The numbers of the timers that wait."""
    return [int.from_bytes(each.place.timer_id, "big") for each in list_scheduled(instance, topic, 1_000).timers]


def deliver_due(instance: Instance) -> None:
    promote_due(instance, budget_ms=FOREVER_MS)


def values(instance: Instance, partition: int = 0) -> list[str]:
    return [value for _, value in read_all(instance, "orders", partition)]


def test_delayed_record_comes_at_a_mirror_whose_source_is_lost() -> None:
    stages = stages_with("a", "b")
    assert waits(stages.mirror) == [0, 1]
    deliver_due(stages.mirror)
    stages.clock.time_ms += HOUR_MS - 120_000 - 60_000
    promote_topic(stages.mirror, "orders")
    deliver_due(stages.mirror)
    assert values(stages.mirror) == ["first"], "it comes before its time"
    stages.clock.time_ms += HOUR_MS
    deliver_due(stages.mirror)
    assert values(stages.mirror) == ["first", "a", "b"]


def test_mirrored_head_takes_no_delivery() -> None:
    stages = stages_with("a")
    stages.clock.time_ms += 2 * HOUR_MS
    deliver_due(stages.mirror)
    error = refused(
        ErrorCode.MIRRORED, lambda: promote_partition(stages.mirror, key_of(stages.mirror, "orders"), 0, FOREVER_MS)
    )
    assert "promotion" in error.message
    assert values(stages.mirror) == ["first"]
    assert waits(stages.mirror) == [0]


def test_push_of_a_delivered_record_settles_its_copy() -> None:
    stages = stages_with("a", "b")
    stages.clock.time_ms += HOUR_MS
    deliver_due(stages.source.instance)
    stages.source.start()
    stages.run()
    assert values(stages.mirror) == ["first", "a", "b"]
    assert waits(stages.mirror) == []
    promote_topic(stages.mirror, "orders")
    deliver_due(stages.mirror)
    assert values(stages.mirror) == ["first", "a", "b"]


def test_timer_that_was_cancelled_goes_with_the_next_telling() -> None:
    stages = stages_with("a", "b")
    [first, _] = list_scheduled(stages.source.instance, "orders", 9).timers
    cancel_scheduled(stages.source.instance, "orders", scheduled_id(Partition(0), first.place))
    assert waits(stages.mirror) == [0, 1]
    tell(stages)
    assert waits(stages.mirror) == [1]


def test_timer_that_was_cancelled_goes_from_a_partition_that_has_no_record_yet() -> None:
    stages = stages_with(partitions=2)
    delay_at(stages, "a", 0, partition=1)
    tell(stages)
    assert waits(stages.mirror) == [0]
    [waiting] = list_scheduled(stages.source.instance, "orders", 1).timers
    cancel_scheduled(stages.source.instance, "orders", scheduled_id(Partition(1), waiting.place))
    tell(stages)
    assert waits(stages.mirror) == []
    state = stages.source.state()
    assert state is not None
    assert state.timers is not None
    assert state.timers.told_left == 0, "a planned promotion waits for that"


def test_copy_goes_though_its_delivery_died_and_the_source_is_as_it_was_told() -> None:
    stages = stages_with("a")
    delay_at(stages, "b", 1)
    source = stages.source.instance
    b = list_scheduled(source, "orders", 9).timers[1].place
    died = list[int]()

    def die(_: Any, *given: Any) -> Any:
        if waits(stages.mirror) == [0, 1] and not died:
            died.append(1)
            cancel_scheduled(source, "orders", scheduled_id(Partition(0), b))
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the delivery dies")
        return source.stores.push.put_delivery(*given)

    stages.source.instance = with_stores(source, push=Intercepted(source.stores.push, put_delivery=die))
    tell(stages)
    assert died
    tell(stages)
    tell(stages)
    assert waits(stages.mirror) == [0]


def test_copies_that_differ_are_found_after_a_day() -> None:
    """One has gone, as with a restore of the mirror. One came late, to a partition where nothing waits any more."""
    stages = stages_with("a", partitions=2)
    [copy] = [each for each in stages.timer_calls if each.parts]
    [at_mirror] = list_scheduled(stages.mirror, "orders", 9).timers
    stages.mirror.stores.timers.delete(at_mirror.key, at_mirror.place)
    assert copy.timers is not None
    place = replace(copy.timers, copied=[at_mirror.place._replace(timer_id=TimerId(bytes(15) + b"\x07"))])
    append_push(stages.mirror, replace(copy, partition=Partition(1), timers=place))
    tell(stages)
    assert waits(stages.mirror) == [7]
    delay_at(stages, "b", 1, in_ms=48 * HOUR_MS)
    stages.clock.time_ms += 24 * HOUR_MS
    tell(stages)
    tell(stages)
    assert waits(stages.mirror) == [1]


def test_copies_go_in_parts_while_the_lane_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_with("a")
    for number in range(1, 8):
        delay_at(stages, "b" * 20 if number < 7 else "c" * 300, number)
    monkeypatch.setattr(tell_timers, "MIRROR_TIMERS_PUT", 3)
    monkeypatch.setattr(tell_timers, "MIRROR_PUSH_BYTES", 200)
    source = stages.source.instance
    held = list[float]()

    def note(_: Any, timer: Timer) -> None:
        stages.clock.time_ms += 600
        lane = source.stores.push.find_lane(LaneKey(subscription_id=ID, lane=0))
        assert lane is not None
        held.append(lane.locked_until_ms - stages.clock.time_ms)
        source.stores.timers.note_told(timer)

    stages.source.instance = with_stores(source, timers=Intercepted(source.stores.timers, note_told=note))
    tell(stages)
    assert sorted(waits(stages.mirror)) == [*range(7)], "the last one exceeds a push"
    assert max(len(each.data) for each in stages.timer_calls) <= 200
    assert min(held) > 0


def test_unchanged_timers_cost_no_request() -> None:
    stages = stages_with("a", "b")
    before = len(stages.timer_calls)
    tell(stages)
    tell(stages)
    assert len(stages.timer_calls) == before
    delay_at(stages, "c", 3)
    tell(stages)
    assert len(stages.timer_calls) == before + 2, "a comparison, and the copy"


def test_stage_without_delayed_records_costs_one_read() -> None:
    stages = Stages()
    stages.source.append("first")
    stages.run()
    counts: Counter[str] = Counter()
    stages.source.instance = counted_instance(stages.source.instance, counts)
    tell(stages)
    assert stages.timer_calls == []
    assert {name: count for name, count in counts.items() if name.startswith("timers.")} == {
        "timers.switched_on_ms": counts["memberships.registered"]
    }


def test_lost_answers_and_doubled_tellings_make_one_copy() -> None:
    stages = Stages(loses_timers=2)
    stages.source.append("first")
    stages.run()
    delay_at(stages, "a", 0)
    for _ in range(4):
        tell(stages)
    assert waits(stages.mirror) == [0]
    for each in [*stages.timer_calls]:
        append_push(stages.mirror, each)
    assert waits(stages.mirror) == [0]


def test_late_copy_of_a_delivered_record_does_not_come_again() -> None:
    stages = stages_with("a")
    stages.clock.time_ms += HOUR_MS - 300_000
    [late] = [each for each in stages.timer_calls if each.parts]
    stages.clock.time_ms += 300_000 - 120_000
    deliver_due(stages.source.instance)
    stages.source.start()
    stages.run()
    assert late.timers is not None
    append_push(stages.mirror, replace(late, timers=replace(late.timers, read_ms=stages.clock.now_ms())))
    assert waits(stages.mirror) == [], "its mark is there"
    stages.clock.time_ms = late.timers.read_ms + MIRROR_TELLING_MS_MAX + 1
    error = refused(ErrorCode.INVALID_REQUEST, lambda: append_push(stages.mirror, late))
    assert "clocks" in error.message


def test_settled_places_wait_for_the_records_that_were_delivered() -> None:
    """The delivered ref has no note any more, as after a merge: its push settles nothing, and the comparison does."""
    stages = stages_with("a")
    source = stages.source.instance
    stages.clock.time_ms += HOUR_MS
    deliver_due(source)
    stages.holds = {0}
    tell(stages)
    assert waits(stages.mirror) == [0], "the mirror lacks the record"
    stages.holds = set()
    tables = source.stores.timers
    stages.source.instance = with_stores(source, timers=Intercepted(tables, find_told=lambda *_: {}))
    stages.source.start()
    stages.run()
    tell(stages)
    assert values(stages.mirror) == ["first", "a"]
    assert waits(stages.mirror) == []


def test_timer_that_is_overdue_for_long_is_left() -> None:
    stages = Stages()
    stages.source.append("first")
    stages.run()
    delay_at(stages, "a", 0, in_ms=0)
    stages.clock.time_ms += TIMER_PAST_MS_MAX + 60_000
    tell(stages)
    assert waits(stages.source.instance) == [0]
    assert waits(stages.mirror) == []
    state = stages.source.state()
    assert state is not None
    assert state.timers is not None
    assert (state.timers.told, state.timers.told_left) == (1, 1)


def test_many_timers_go_in_parts_of_a_pass() -> None:
    stages = Stages(partitions=6)
    for partition in range(6):
        stages.source.append("first", partition=partition)
    stages.run()
    for number in range(12):
        delay_at(stages, f"v{number}", number, partition=number % 6)
    tell(stages)
    assert sorted(waits(stages.mirror)) == [*range(12)]
    state = stages.source.state()
    assert state is not None
    assert state.timers is not None
    assert (state.timers.told, state.timers.told_left, len(state.timers.digests)) == (12, 0, 6)


def test_resync_is_told_all_timers_anew() -> None:
    stages = stages_with("a", "b")
    resync_topic(stages.mirror, "orders")
    stages.again()
    tell(stages)
    assert waits(stages.mirror) == [0, 1]


def test_planned_promotion_leaves_no_timer() -> None:
    stages = stages_with("a")
    delay_at(stages, "b", 1)
    moved = move(stages)
    assert not moved.are_timers_told
    stages.clock.time_ms += 60_000
    stages.again()
    moved = move(stages)
    assert (moved.timers, moved.are_timers_told) == (2, True)
    assert promote(stages, moved).is_whole
    stages.clock.time_ms += 2 * HOUR_MS
    for side in (stages.source.instance, stages.mirror):
        deliver_due(side)
    assert values(stages.mirror) == ["first", "a", "b"]
    [waiting] = list_scheduled(stages.source.instance, "orders", 1).timers
    name = scheduled_id(Partition(0), waiting.place)
    refused(ErrorCode.MOVED, lambda: cancel_scheduled(stages.source.instance, "orders", name))


def test_record_that_is_sent_again_to_the_mirror_comes_once() -> None:
    stages = stages_with("a")
    due_ms = list_scheduled(stages.mirror, "orders", 1).timers[0].place.due_ms
    delay(stages.mirror, "orders", due_ms, "a", number=0)
    promote_topic(stages.mirror, "orders")
    delay(stages.mirror, "orders", due_ms, "a", number=0)
    stages.clock.time_ms += 2 * HOUR_MS
    deliver_due(stages.mirror)
    assert values(stages.mirror) == ["first", "a"]


def test_minutes_of_a_mirror_leave_the_index_once_their_copies_are_settled() -> None:
    stages = stages_with("a")
    stages.clock.time_ms += HOUR_MS
    deliver_due(stages.source.instance)
    stages.clock.time_ms += 2 * HOUR_MS
    deliver_due(stages.mirror)
    assert len(stages.mirror.stores.timers.due_minutes(10**8)) == 1, "its copy waits"
    stages.source.start()
    stages.run()
    deliver_due(stages.mirror)
    assert stages.mirror.stores.timers.due_minutes(10**8) == []
