"""A topic moves to its mirror: no offset is given on both sides, whatever is late, repeated, or given up."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, Nonce, Offset, Partition
from penstock_core.limits import TIMER_ORPHAN_MS
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.timer import DueSecond
from penstock_core.log.topic import MirrorNote, MoveNote, MoveState, Topic
from penstock_core.mirror.group_offsets import MirroredOffset, MirroredOffsets
from penstock_core.mirror.push import HeadMove, LogEnd, PlannedPromotion, SourceTopic
from penstock_service.instance.instance import Instance
from penstock_service.mirror import move_topic as move_topic_module
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.move_topic import MovedTopic, move_topic, reopen_topic, return_topic
from penstock_service.mirror.promote_topic import PromotedTopic, promote_topic, refuse_move, resync_topic
from penstock_service.push.admin.pause_subscription import pause_subscription
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.records.jump_heads import Restore, jump_heads
from penstock_service.records.produce import ProduceEntry
from penstock_service.timers.promote import promote_second
from penstock_service.timers.promote_due import promote_due
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from tests.service.mirror.stages import Stages
from tests.service.mirror.test_mirrored_log import assert_equal, stages_of
from tests.service.timers.delays import delay
from tests.service.transactions.test_repeats import begin, commit, part_of
from tests.support.refusals import refused
from tests.support.service import (
    START_MS,
    Intercepted,
    ask,
    batch,
    counted_instance,
    head_of,
    key_of,
    new_topic,
    send,
    with_stores,
)
from tests.support.timers import waiting

PARTITIONS = 2


@pytest.fixture
def stages() -> Stages:
    return stages_of("a", "b", partitions=PARTITIONS)


def planned(stages: Stages, moved: MovedTopic, **changes: Any) -> PlannedPromotion:
    mirrored = stages.mirror.topic_cache.read_through("orders")
    wish = PlannedPromotion(
        number=moved.note.number,
        mirror=moved.note.mirror,
        topic_id=mirrored.topic_id,
        source=moved.source,
        ends={each.partition: LogEnd(log_id=each.log_id, next_offset=each.end_offset) for each in moved.partitions},
    )
    return replace(wish, **changes)


def move(stages: Stages) -> MovedTopic:
    return move_topic(stages.source.instance, "orders", "packing")


def promote(stages: Stages, moved: MovedTopic, **changes: Any) -> PromotedTopic:
    return promote_topic(stages.mirror, "orders", planned(stages, moved, **changes))


def test_mirror_that_is_away_when_a_moved_log_asks_is_asked_again() -> None:
    """Its records went before the first push, so the place of the delivery is no answer of the mirror."""
    stages = Stages(partitions=PARTITIONS, is_away=True)
    source = stages.source.instance
    send(source, "orders", "x", partition=1)
    send(source, "orders", "y", partition=1)
    source.stores.log.raise_log_start(key_of(source, "orders", 1), Offset(2))
    moved = move(stages)
    stages.run()
    stages.is_away = False
    stages.run()
    assert promote(stages, moved).is_whole
    assert head_of(stages.mirror, "orders", 1).promoted_at == 2


def test_moved_topic_tells_where_it_goes_on(stages: Stages) -> None:
    source = stages.source.instance
    stages.source.append("c")
    moved = move(stages)
    [first, second] = moved.partitions
    assert (first.end_offset, first.mirrored_offset, first.lag) == (3, 2, 1)
    assert (second.end_offset, second.lag, second.appended_ms) == (0, 0, None)
    for change in (
        lambda: send(source, "orders", "x"),
        lambda: alter_topic(source, "orders", 3, {}),
        lambda: truncate(source, "orders", {0: 1}),
    ):
        error = refused(ErrorCode.MOVED, change)
        assert error.facts == {"url": "https://b.example", "topic": "orders", "mirror": "packing"}
    stages.run()
    again = move(stages)
    assert [each.lag for each in again.partitions] == [0, 0]
    assert again.note == moved.note
    assert promote(stages, again).is_whole
    assert send(stages.mirror, "orders", "d").base_offset == 3
    assert send(stages.mirror, "orders", "e", partition=1).base_offset == 0
    assert [each.promoted_at for each in promote(stages, again).partitions] == [3, 0], "a repeat"
    refused(ErrorCode.MOVED, lambda: send(source, "orders", "x"))


def test_moved_log_is_read_to_its_end_which_tells_where_it_goes_on(stages: Stages) -> None:
    source = stages.source.instance
    moved = move(stages)
    assert ask(source, "orders", 0).next_offset == 2
    error = refused(ErrorCode.MOVED, lambda: ask(source, "orders", 2, wait_ms=60_000))
    assert error.facts == {"url": "https://b.example", "topic": "orders", "mirror": "packing"}
    counts = Counter[str]()
    counted = counted_instance(source, counts)
    counted.topic_cache.get("orders")
    counts.clear()
    ends = [FetchEntry(topic="orders", partition=each, offset=2 - 2 * each, max_bytes=9) for each in range(PARTITIONS)]
    found = fetch(counted, ends, max_bytes=1_000, min_bytes=0, wait_ms=0)
    assert [isinstance(each, PenstockError) and each.code for each in found] == [ErrorCode.MOVED] * 2
    assert counts["topics.get"] == 1, "each fetch reads the topic, and not for each partition"
    reopen_topic(source, "orders", moved.note.number)
    assert ask(source, "orders", 2).next_offset == 2


def test_dry_run_changes_nothing(stages: Stages) -> None:
    told = move_topic(stages.source.instance, "orders", "packing", is_dry_run=True)
    assert [each.end_offset for each in told.partitions] == [2, 0]
    assert send(stages.source.instance, "orders", "x").base_offset == 2


def test_mirror_that_lacks_records_is_not_promoted(stages: Stages) -> None:
    stages.source.append("c")
    stages.is_away = True
    moved = move(stages)
    found = promote(stages, moved)
    assert not found.is_whole
    assert [each.partition for each in found.partitions] == [1], "the empty one is equal"
    refused(ErrorCode.MIRRORED, lambda: send(stages.mirror, "orders", "x"))
    stages.is_away = False
    stages.run()
    assert promote(stages, moved).is_whole
    assert_equal(stages)


def test_settings_that_no_push_has_told_come_with_the_promotion(stages: Stages) -> None:
    stages.is_away = True
    alter_topic(stages.source.instance, "orders", 4, {"retention_ms": 3_600_000})
    stages.clock.time_ms += 20_000
    moved = move(stages)
    assert promote(stages, moved).is_whole
    mirrored = stages.mirror.topic_cache.read_through("orders")
    assert (mirrored.partitions, mirrored.config.retention_ms) == (4, 3_600_000)
    assert send(stages.mirror, "orders", "x", partition=3).base_offset == 0


def test_topic_is_reopened_once_its_mirror_has_refused(stages: Stages) -> None:
    moved = move(stages)
    refuse_move(stages.mirror, "orders", 1)
    reopened = reopen_topic(stages.source.instance, "orders", 1)
    assert reopened.move is not None
    assert reopened.move.state is MoveState.OPEN
    assert reopen_topic(stages.source.instance, "orders", 1) == reopened, "a repeat"
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: promote(stages, moved))
    stages.source.append("c")
    stages.run()
    assert_equal(stages)
    again = move(stages)
    assert again.note.number == 2
    assert promote(stages, again).is_whole


def test_decided_promotion_is_not_refused(stages: Stages) -> None:
    stages.source.append("c")
    stages.is_away = True
    moved = move(stages)
    assert not promote(stages, moved).is_whole
    refused(ErrorCode.MIRROR_ENDED, lambda: refuse_move(stages.mirror, "orders", 1))
    refused(ErrorCode.INVALID_REQUEST, lambda: resync_topic(stages.mirror, "orders"))
    assert promote_topic(stages.mirror, "orders").is_whole, "the source is lost in the middle"
    refused(ErrorCode.MIRROR_ENDED, lambda: refuse_move(stages.mirror, "orders", 1))


def test_late_steps_of_a_move_that_was_given_up_change_nothing(stages: Stages) -> None:
    source = stages.source.instance
    move(stages)
    refuse_move(stages.mirror, "orders", 1)
    reopen_topic(source, "orders", 1)
    late = HeadMove(number=1, log_id="l9", now_ms=1)
    source.stores.log.move(key_of(source, "orders"), late)
    assert send(source, "orders", "x").base_offset == 2


def test_late_end_of_a_head_that_the_move_had_not_ended_changes_nothing(stages: Stages) -> None:
    source = stages.source.instance
    topic = source.topic_cache.read_through("orders")
    note = MoveNote(number=1, mirror="packing", url="https://b.example", topic="orders")
    source.stores.topics.replace(topic, replace(topic, move=note))  # the mover froze before the first head
    source.topic_cache.forget(topic.name)
    refuse_move(stages.mirror, "orders", 1)
    reopen_topic(source, "orders", 1)
    source.stores.log.move(key_of(source, "orders"), HeadMove(number=1, log_id="l9", now_ms=1))
    assert send(source, "orders", "x").base_offset == 2
    assert move(stages).note.number == 2
    assert head_of(source, "orders").move == 2


def test_topic_whose_move_has_not_ended_each_head_does_not_go_back(stages: Stages) -> None:
    source = stages.source.instance
    topic = source.topic_cache.read_through("orders")
    note = MoveNote(number=1, mirror="packing", url="https://b.example", topic="orders")
    source.stores.topics.replace(topic, replace(topic, move=note))
    source.stores.log.move(key_of(source, "orders"), HeadMove(number=1, log_id="l1", now_ms=1))
    back = MirrorNote(name="back", topic_id="ef" * 10, source="https://b.example")
    refused(ErrorCode.INVALID_REQUEST, lambda: return_topic(source, "orders", 1, back))
    move(stages)
    assert return_topic(source, "orders", 1, back).mirror == back
    assert return_topic(source, "orders", 1, back).mirror == back, "a repeat"
    assert [head_of(source, "orders", number).mirror for number in range(PARTITIONS)] == ["back"] * PARTITIONS


def test_topic_that_opens_again_is_not_moved(stages: Stages) -> None:
    source = stages.source.instance
    move(stages)
    topic = source.topic_cache.read_through("orders")
    assert topic.move is not None
    source.stores.topics.replace(topic, replace(topic, move=replace(topic.move, state=MoveState.REOPENING)))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: move(stages))
    reopen_topic(source, "orders", 1)
    assert send(source, "orders", "x").base_offset == 2


def test_promoted_mirror_that_was_lost_is_another_log(stages: Stages) -> None:
    moved = move(stages)
    assert promote(stages, moved).is_whole
    refused(ErrorCode.MIRROR_ENDED, lambda: refuse_move(stages.mirror, "orders", 1))
    reopen_topic(stages.source.instance, "orders", 1, is_mirror_lost=True)
    assert head_of(stages.source.instance, "orders").log_id != moved.partitions[0].log_id
    assert send(stages.source.instance, "orders", "x").base_offset == 2
    assert send(stages.mirror, "orders", "y").base_offset == 2, "two logs, and each has a name of its own"


def test_move_that_died_between_two_heads_goes_on(stages: Stages) -> None:
    source = stages.source.instance
    move(stages)
    refuse_move(stages.mirror, "orders", 1)
    reopen_topic(source, "orders", 1)
    topic = source.topic_cache.read_through("orders")
    assert topic.move is not None
    noted = replace(topic, move=replace(topic.move, number=2, state=MoveState.MOVED))
    source.stores.topics.replace(topic, noted)
    source.stores.log.move(key_of(source, "orders"), HeadMove(number=2, log_id="l2", now_ms=1))
    assert [each.log_id for each in move(stages).partitions] == [
        head_of(source, "orders", number).log_id for number in range(PARTITIONS)
    ]
    assert all(head_of(source, "orders", number).move == 2 for number in range(PARTITIONS))


@pytest.mark.parametrize(
    "change",
    [{"topic_id": "ef" * 10}, {"mirror": "other"}],
)
def test_promotion_of_another_topic_or_mirror_is_refused(stages: Stages, change: dict[str, str]) -> None:
    moved = move(stages)
    refused(ErrorCode.TOPIC_EXISTS, lambda: promote(stages, moved, **change))
    other: SourceTopic = replace(moved.source, name="others")
    refused(ErrorCode.TOPIC_EXISTS, lambda: promote(stages, moved, source=other))
    assert stages.mirror.topic_cache.find(other.name) is None


def test_promotion_that_lacks_a_partition_is_not_whole(stages: Stages) -> None:
    moved = move(stages)
    ends = planned(stages, moved).ends
    more = {**ends, Partition(7): LogEnd(log_id="l7", next_offset=Offset(0))}
    assert not promote(stages, moved, ends=more).is_whole


def test_only_what_an_active_subscription_mirrors_is_moved(stages: Stages) -> None:
    source = stages.source.instance
    new_topic(source, "others", 1)
    refused(ErrorCode.INVALID_REQUEST, lambda: move_topic(source, "others", "packing"))
    refused(ErrorCode.UNKNOWN_SUBSCRIPTION, lambda: move_topic(source, "orders", "nobody"))
    pause_subscription(source, "packing")
    refused(ErrorCode.INVALID_REQUEST, lambda: move(stages))
    refused(ErrorCode.INVALID_REQUEST, lambda: reopen_topic(source, "orders", 1))
    assert send(source, "orders", "x").base_offset == 2


def test_topic_that_is_made_anew_meanwhile_is_not_moved(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mirror has it: it would take no appends, and go on nowhere."""
    source = stages.source.instance

    def open_anew(instance: Instance, name: str) -> Topic:
        monkeypatch.undo()
        delete_topic(instance, name)
        new_topic(instance, name, partitions=PARTITIONS)
        return instance.topic_cache.read_through(name)

    monkeypatch.setattr(move_topic_module, "open_generation", open_anew)
    refused(ErrorCode.INVALID_REQUEST, lambda: move(stages))
    assert send(source, "orders", "x").base_offset == 0


def test_moved_topic_may_be_deleted(stages: Stages) -> None:
    moved = move(stages)
    assert promote(stages, moved).is_whole
    delete_topic(stages.source.instance, "orders")


def test_late_push_meets_the_promoted_log(stages: Stages) -> None:
    moved = move(stages)
    assert promote(stages, moved).is_whole
    refused(ErrorCode.TOPIC_EXISTS, lambda: append_push(stages.mirror, stages.pushes[-1]))


def test_promoted_mirror_is_not_asked_for_ever(stages: Stages) -> None:
    moved = move(stages)
    assert promote(stages, moved).is_whole
    stages.again()
    state = stages.source.state()
    assert state is not None
    assert (state.trouble, state.next_try_ms) == (None, 0)


def test_timer_of_a_moved_topic_waits_until_it_is_reopened(stages: Stages) -> None:
    source, clock = stages.source.instance, stages.clock
    delay(source, "orders", clock.now_ms() + 60_000, "later")
    move(stages)
    refused(ErrorCode.MOVED, lambda: delay(source, "orders", clock.now_ms() + 60_000, "x", number=1))
    for passed_ms in (120_000, TIMER_ORPHAN_MS + 120_000):
        clock.time_ms += passed_ms
        due = promote_due(source, budget_ms=1_000)
        assert (due.promotion.timers, due.failures, due.minutes_forgotten) == (0, 0, 0)
    second = DueSecond(key=key_of(source, "orders"), second=clock.now_ms() // 1_000 - 1)
    assert promote_second(source, second, 1e12).timers == 0
    refuse_move(stages.mirror, "orders", 1)
    reopen_topic(source, "orders", 1)
    assert promote_due(source, budget_ms=1_000).promotion.timers == 1


def test_timer_that_is_delivered_while_the_topic_moves_is_refused(stages: Stages) -> None:
    source, clock = stages.source.instance, stages.clock
    delay(source, "orders", clock.now_ms() + 60_000, "later")
    [timer] = waiting(source.stores.timers, key_of(source, "orders"), 0, clock.now_ms() + 60_001, 9)
    move(stages)
    assert source.stores.timers.promote(Delivery(key=timer.key, timers=[timer], now_ms=1)) is DeliveryOutcome.MOVED
    assert head_of(source, "orders").next_offset == 2


def test_transaction_with_a_moved_topic_is_refused_as_a_whole(stages: Stages) -> None:
    source = stages.source.instance
    new_topic(source, "others", 1)
    number = begin(source).number + 1 - START_MS
    move(stages)
    entries = [ProduceEntry(topic=name, partition=0, data=batch("x")) for name in ("orders", "others")]
    error = refused(ErrorCode.MOVED, lambda: commit(source, part_of(number, Nonce(bytes(16)), *entries)))
    assert error.facts["url"] == "https://b.example"
    assert head_of(source, "others").next_offset == 0


def test_restore_leaves_a_moved_log_at_its_end(stages: Stages) -> None:
    source = stages.source.instance
    move(stages)
    topic = source.topic_cache.read_through("orders")
    restore = Restore(restore_id="r1", harmed=source.stores.log)
    assert list(jump_heads(source, topic, restore)) == []
    lost = Restore(restore_id="r1", harmed=None)
    topic = source.topic_cache.read_through("orders")
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: list(jump_heads(source, topic, lost)))


def note_of(stages: Stages) -> MirrorNote:
    return MirrorNote(name="back", topic_id=stages.mirror.topic_cache.read_through("orders").topic_id)


def test_moved_topic_becomes_a_mirror_once_and_is_neither_moved_nor_reopened_meanwhile(stages: Stages) -> None:
    source, moved = stages.source.instance, move(stages)
    assert promote(stages, moved).is_whole
    topic = source.topic_cache.read_through("orders")
    assert topic.move is not None
    returning = replace(topic.move, state=MoveState.RETURNING, mirror="back")
    source.stores.topics.replace(topic, replace(topic, move=returning))
    source.stores.log.return_to(key_of(source, "orders"), 1, "back")
    former = MirroredOffsets(read_ms=1, groups={GroupName("billing"): {Partition(0): MirroredOffset(offset=Offset(1))}})
    source.stores.log.put_offsets(key_of(source, "orders").topic_id, 1, former)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: move(stages))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: reopen_topic(source, "orders", 1, is_mirror_lost=True))
    returned = return_topic(source, "orders", 1, note_of(stages))
    assert returned.mirror == note_of(stages)
    assert [head_of(source, "orders", number).mirror for number in range(PARTITIONS)] == ["back", "back"]
    assert source.stores.log.find_offsets(returned.topic_id) is None, "the former source told it"
    assert return_topic(source, "orders", 1, note_of(stages)) == returned, "a repeat"
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: return_topic(source, "orders", 2, note_of(stages)))
    refused(ErrorCode.MIRRORED, lambda: send(source, "orders", "x"))
    refused(ErrorCode.MIRRORED, lambda: move(stages))


def test_topic_that_reopens_does_not_return(stages: Stages) -> None:
    source = stages.source.instance
    move(stages)
    topic = source.topic_cache.read_through("orders")
    assert topic.move is not None
    source.stores.topics.replace(topic, replace(topic, move=replace(topic.move, state=MoveState.REOPENING)))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: return_topic(source, "orders", 1, note_of(stages)))
    reopen_topic(source, "orders", 1)
    refused(ErrorCode.INVALID_REQUEST, lambda: return_topic(source, "orders", 1, note_of(stages)))
    assert send(source, "orders", "x").base_offset == 2


def test_topic_returns_under_one_name_and_does_not_reopen_then(stages: Stages) -> None:
    """The first call died between two heads. Under two names no push and no promotion would reach both."""
    source, moved = stages.source.instance, move(stages)
    assert promote(stages, moved).is_whole
    topic = source.topic_cache.read_through("orders")
    assert topic.move is not None
    returning = replace(topic.move, state=MoveState.RETURNING, mirror="back")
    source.stores.topics.replace(topic, replace(topic, move=returning))
    source.stores.log.return_to(key_of(source, "orders"), 1, "back")
    other = replace(note_of(stages), name="other")
    error = refused(ErrorCode.INVALID_REQUEST, lambda: return_topic(source, "orders", 1, other))
    assert "'back'" in error.message
    assert head_of(source, "orders", 1).move == 1, "nothing was written"
    assert return_topic(source, "orders", 1, note_of(stages)).mirror == note_of(stages)
    assert "'back'" in refused(ErrorCode.INVALID_REQUEST, lambda: return_topic(source, "orders", 1, other)).message
    refused(ErrorCode.MIRRORED, lambda: reopen_topic(source, "orders", 1))


def test_operators_who_return_a_topic_at_once_under_two_names_do_it_under_one(stages: Stages) -> None:
    """The second one comes between the first one's heads, and after its check."""
    source, moved = stages.source.instance, move(stages)
    assert promote(stages, moved).is_whole
    other, refusals = replace(note_of(stages), name="other"), list[PenstockError]()

    def return_to(write: Any, *arguments: Any) -> Any:
        if not refusals:
            refusals.append(refused(ErrorCode.INVALID_REQUEST, lambda: return_topic(source, "orders", 1, other)))
        return write(*arguments)

    slow = with_stores(source, log=Intercepted(source.stores.log, return_to=return_to))
    assert return_topic(slow, "orders", 1, note_of(stages)).mirror == note_of(stages)
    assert "'back'" in refusals[0].message
    assert {head_of(source, "orders", number).mirror for number in range(PARTITIONS)} == {"back"}
