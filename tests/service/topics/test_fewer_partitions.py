"""Topics with fewer and more partitions again: what a closed partition refuses, answers and keeps (docs/adr/0046).

Groups, share groups and subscriptions on partitions that drain, go, and come back (docs/protocol/partitions).
"""

from functools import partial
from typing import Any, NoReturn

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, Partition
from penstock_core.limits import DRAIN_MS_MIN, GROUP_CHECK_MS_MAX, LOG_START_GRACE_MS
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.describe_group import describe_group
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.index.heads import settle_heads
from penstock_service.instance.instance import Instance
from penstock_service.push.look import look
from penstock_service.records.produce import produce
from penstock_service.retention.retain import retain
from penstock_service.timers.promote import promote_partition
from penstock_service.topics.alter_topic import alter_topic, truncate
from penstock_service.topics.describe_topic import describe_topic
from penstock_service.topics.list_offsets import OffsetSpec
from tests.service.push.parallel.test_deliver_parallel import parallel
from tests.service.records.test_idempotence import crowd, numbered, tell
from tests.service.timers.delays import FOREVER_MS, delay
from tests.service.transactions.test_transactions import begin, commit, places, stage
from tests.support.group_member import GroupMember, settle
from tests.support.interleaving import catch_kill, killed_at
from tests.support.push_deliveries import Deliveries
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    batch,
    entry,
    head_of,
    key_of,
    new_topic,
    read_all,
    send,
)


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=4)


CLOSED = ErrorCode.PARTITION_CLOSED


def states(instance: Instance, topic: str) -> list[str]:
    _, bounds = describe_topic(instance.topic_cache, instance.stores.log, topic)
    return [each.state.value for each in bounds]


def test_closed_partition_takes_no_records_and_keeps_those_that_it_has(instance: Instance, topic: str) -> None:
    stale = another_instance(instance)
    send(stale, topic, "kept", partition=3)
    altered = alter_topic(instance, topic, 2, {})
    assert (altered.partitions, altered.writable_partitions, altered.layout) == (4, 2, 1)
    for each in (stale, instance):
        refused(CLOSED, partial(send, each, topic, "new", partition=3))
    assert send(stale, topic, "new", partition=1) == appended(0, 1)
    assert read_all(instance, topic, 3) == [(0, "kept")]
    assert states(instance, topic) == ["active", "active", "draining", "draining"]


def test_neighbours_of_a_closed_partition_succeed_in_the_same_request(instance: Instance, topic: str) -> None:
    alter_topic(instance, topic, 2, {})
    entries = [entry(topic, 3, batch("a")), entry(topic, 1, batch("b"))]
    refusal, done = produce(instance, entries, Acks.QUORUM)
    assert isinstance(refusal, PenstockError)
    assert done == appended(0, 1)


def test_retry_of_an_idempotent_producer_is_answered_when_the_partition_was_closed_since(
    instance: Instance, topic: str
) -> None:
    first = tell(instance, topic, numbered(0, "a", "b"), partition=3)
    tell(instance, topic, numbered(2, "c"), partition=3)
    alter_topic(instance, topic, 2, {})
    assert tell(instance, topic, numbered(0, "a", "b"), partition=3) == first
    assert tell(instance, topic, numbered(2, "c"), partition=3) == appended(2, 3)
    refused(CLOSED, lambda: tell(instance, topic, numbered(3, "d"), partition=3))


def test_retry_is_answered_when_the_producer_has_left_the_closed_head(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    first = tell(instance, topic, numbered(0, "a", producer_id=1), partition=0)
    crowd(instance, topic)
    assert 1 not in head_of(instance, topic, 0).producers
    key = key_of(instance, topic, 0)
    instance.stores.log.move_to_layout(key, 9, 1_000)
    assert tell(instance, topic, numbered(0, "a", producer_id=1), partition=0) == first


def test_append_whose_answer_was_lost_is_a_repeat_when_the_partition_closes_before_the_retry(
    instance: Instance, topic: str
) -> None:
    def lose(append: Any, *arguments: object) -> NoReturn:
        append(*arguments)
        raise LOST_ANSWER

    lossy = another_instance(instance, log=Intercepted(instance.stores.log, append_in_sequence=lose))
    with pytest.raises(PenstockError) as error:
        tell(lossy, topic, numbered(0, "a"), partition=3)
    assert error.value.maybe_applied
    alter_topic(instance, topic, 2, {})
    assert tell(instance, topic, numbered(0, "a"), partition=3) == appended(0, 1)
    assert read_all(instance, topic, 3) == [(0, "a")]


def test_transaction_is_refused_as_a_whole_when_a_partition_was_closed(instance: Instance, topic: str) -> None:
    producer = begin(instance)
    stage(instance, producer, 0, 0, entry(topic, 3, batch("a")))
    alter_topic(instance, topic, 2, {})
    refused(CLOSED, lambda: commit(instance, producer, 0, entry(topic, 0, batch("b")), stages=1))
    assert read_all(instance, topic, 0) == read_all(instance, topic, 3) == []
    assert places(commit(instance, producer, 0, entry(topic, 0, batch("b")))) == [(topic, 0, 0, 1)]


def test_committed_transaction_is_answered_again_when_its_partition_was_closed_since(
    instance: Instance, topic: str
) -> None:
    producer = begin(instance)
    first = commit(instance, producer, 0, entry(topic, 3, batch("a")))
    alter_topic(instance, topic, 2, {})
    assert commit(instance, producer, 0, entry(topic, 3, batch("a"))) == first


def test_delayed_records_come_to_their_partition_although_it_was_closed(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 60_000
    waits = delay(instance, topic, due_ms, "later", partition=3)
    alter_topic(instance, topic, 2, {})
    assert delay(instance, topic, due_ms, "later", partition=3) == waits, "a repeat"
    refused(CLOSED, lambda: delay(instance, topic, due_ms, "new", partition=3, number=7))
    clock.time_ms = due_ms + 1_000
    promote_partition(instance, waits.key, 0, FOREVER_MS)
    assert read_all(instance, topic, 3) == [(0, "later")]


def test_partition_opens_again_and_its_offsets_go_on(instance: Instance, topic: str) -> None:
    stale = another_instance(instance)
    send(instance, topic, "a", partition=3)
    alter_topic(instance, topic, 2, {})
    with pytest.raises(PenstockError):
        send(stale, topic, "refused", partition=3)
    altered = alter_topic(instance, topic, 6, {})
    assert (altered.partitions, altered.writable, altered.layout) == (6, None, 2)
    assert send(stale, topic, "b", partition=3) == appended(1, 2)
    assert states(instance, topic) == ["active"] * 6


@pytest.mark.parametrize("call", range(6))
def test_alteration_that_dies_is_ended_by_the_next_and_an_open_partition_by_an_append(
    instance: Instance, topic: str, call: int
) -> None:
    with catch_kill():
        alter_topic(killed_at(instance, call, is_applied=True), topic, 2, {})
    alter_topic(instance, topic, 2, {})
    assert [head_of(instance, topic, number).is_closed for number in range(4)] == [False, False, True, True]
    with catch_kill():
        alter_topic(killed_at(instance, call, is_applied=True), topic, 4, {})
    described, _ = describe_topic(instance.topic_cache, instance.stores.log, topic)
    for number in range(described.writable_partitions):
        assert send(instance, topic, "a", partition=number) == appended(0, 1)


def test_older_layout_changes_nothing_when_its_update_comes_late(instance: Instance, topic: str) -> None:
    fewer = alter_topic(instance, topic, 2, {})
    alter_topic(instance, topic, 4, {})
    settle_heads(instance, fewer, [Partition(2), Partition(3)])
    assert send(instance, topic, "a", partition=3) == appended(0, 1)


GROUP = GroupName("billing")


def retire(instance: Instance, clock: SteppedClock, topic: str, partition: int) -> None:
    """Truncates the last partition, which drains, and lets retention take it away."""
    truncate(instance, topic, {partition: head_of(instance, topic, partition).next_offset})
    clock.time_ms += DRAIN_MS_MIN
    for _ in range(3):
        retain(instance, budget_ms=60_000.0)
        clock.time_ms += 2 * LOG_START_GRACE_MS
    assert instance.topic_cache.read_through(topic).partitions == partition


@pytest.fixture
def member(instance: Instance) -> GroupMember:
    new_topic(instance, "orders", 2)
    send(instance, "orders", "a", "b", partition=1)
    return GroupMember(instance, "m")


def test_member_reads_a_draining_partition_and_commits_it(instance: Instance, member: GroupMember) -> None:
    member.settle()
    alter_topic(instance, "orders", 1, {})
    member.commit(1, 1)
    other = GroupMember(another_instance(instance), "n")
    settle(member, other)
    assert sorted([*member.partitions, *other.partitions]) == [0, 1]
    [holder] = [each for each in (member, other) if 1 in each.partitions]
    holder.commit(1, 2)
    committed = {each.partition.partition: each.offset for each in instance.stores.groups.leases(GROUP)}
    assert committed[Partition(1)] == 2


def test_group_lets_go_of_a_partition_that_went_and_goes_on_where_it_was_when_it_comes_back(
    instance: Instance, clock: SteppedClock, member: GroupMember
) -> None:
    member.settle()
    member.commit(1, 2)
    alter_topic(instance, "orders", 1, {})
    retire(instance, clock, "orders", 1)
    member.forget()
    member.settle()
    assert member.partitions == [0]
    assert [each.lag for each in describe_group(instance, "billing").partitions if each.lag] == []
    alter_topic(instance, "orders", 2, {})
    send(instance, "orders", "c", partition=1)
    clock.time_ms += GROUP_CHECK_MS_MAX
    member.beat()
    member.settle()
    [lease] = [each for key, each in member.held.items() if key.partition == 1]
    assert lease.offset == 2, "offsets go on, so it reads c next"


def test_offsets_of_a_draining_partition_can_be_reset(instance: Instance, member: GroupMember) -> None:
    alter_topic(instance, "orders", 1, {})
    results = dict(reset_offsets(instance, "billing", "orders", ResetTo(end=OffsetSpec.LATEST)))
    found = results[Partition(1)]
    assert not isinstance(found, PenstockError)
    assert found.new_offset == 2


def deliveries_in(mode: str, partitions: int) -> Deliveries:
    return parallel(partitions) if mode == "parallel" else Deliveries(partitions=partitions)


def delivered(deliveries: Deliveries) -> list[tuple[int, bytes | None]]:
    """Makes the target note what it gets."""
    found: list[tuple[int, bytes | None]] = []

    def answer(batch: PushBatch) -> Answer:
        found.extend((each.key.partition, each.record.value) for each in batch.records)
        return Answered()

    deliveries.answer = answer
    return found


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_subscription_delivers_draining_partitions_and_those_that_come_back(mode: str) -> None:
    deliveries = deliveries_in(mode, 2)
    found = delivered(deliveries)
    deliveries.append("old", partition=1)
    alter_topic(deliveries.instance, "orders", 1, {})
    deliveries.run()
    retire(deliveries.instance, deliveries.clock, "orders", 1)
    deliveries.append("first", partition=0)
    deliveries.run()
    alter_topic(deliveries.instance, "orders", 2, {})
    deliveries.append("again", partition=1)
    deliveries.run()
    assert found == [(1, b"old"), (0, b"first"), (1, b"again")]


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_subscription_delivers_a_generation_that_opens_while_it_waits(mode: str) -> None:
    deliveries = deliveries_in(mode, 1)
    found = delivered(deliveries)
    alter_topic(deliveries.instance, "orders", None, {"ordering_on_change": "wait"})
    deliveries.append("old")
    deliveries.run()
    alter_topic(deliveries.instance, "orders", 2, {})
    deliveries.append("new", partition=2)
    deliveries.run()
    assert found == [(0, b"old"), (2, b"new")]


def test_look_meets_a_partition_that_went(clock: SteppedClock) -> None:
    deliveries = Deliveries(partitions=2)
    deliveries.append("old", partition=1)
    alter_topic(deliveries.instance, "orders", 1, {})
    deliveries.run()
    retire(deliveries.instance, deliveries.clock, "orders", 1)
    look(deliveries.instance, budget_ms=60_000.0)
    assert not deliveries.queue.messages
