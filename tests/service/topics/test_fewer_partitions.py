"""Topics with fewer and more partitions again: what a closed partition refuses, answers and keeps (docs/adr/0046)."""

from functools import partial
from typing import Any, NoReturn

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.zones.zone_state import Acks
from penstock_service.index.heads import settle_heads
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.timers.promote import promote_partition
from penstock_service.topics.alter_topic import alter_topic
from penstock_service.topics.describe_topic import describe_topic
from tests.service.records.test_idempotence import crowd, numbered, tell
from tests.service.timers.delays import FOREVER_MS, delay
from tests.service.transactions.test_transactions import begin, commit, places, stage
from tests.support.interleaving import catch_kill, killed_at
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
