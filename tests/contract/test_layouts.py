"""The contract of closed heads, and of topics whose partitions drain (docs/adr/0046)."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId, TopicName
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.index import EMPTY_HEAD, appended
from penstock_core.log.topic import Topic, TopicConfig
from penstock_core.transaction import Move
from tests.contract.conftest import Ports
from tests.contract.test_log_index import append_sequenced, sequenced
from tests.contract.test_timer_store import KEY as TIMED
from tests.contract.test_timer_store import put
from tests.contract.test_topic_store import create
from tests.support.refs import ref_at

KEY = PartitionKey(TopicId("t1"), Partition(0))


def code(error: pytest.ExceptionInfo[PenstockError]) -> tuple[ErrorCode, bool]:
    return error.value.code, error.value.maybe_applied


def test_append_is_refused_and_changes_nothing_when_the_head_is_closed(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = ports.log.append(KEY, ref_at(1_000), 0).head
    closed = ports.log.move_to_layout(KEY, 1, 5_000)
    assert closed == replace(head, closed_ms=5_000, layout=1, closed_offset=Offset(1))
    with pytest.raises(PenstockError) as error:
        ports.log.append(KEY, ref_at(2_000), 0)
    assert code(error) == (ErrorCode.PARTITION_CLOSED, False)
    assert ports.log.heads([KEY]) == {KEY: closed}


def test_append_in_sequence_is_refused_and_tells_the_head_when_it_is_closed(ports: Ports) -> None:
    ports.log.create_head(KEY)
    assert append_sequenced(ports, sequenced(1, 0))[0]
    closed = ports.log.move_to_layout(KEY, 1, 5_000)
    assert append_sequenced(ports, sequenced(2, 3)) == (False, closed), "what follows"
    assert append_sequenced(ports, sequenced(1, 0)) == (False, closed), "a repeat, which the caller recognises"
    assert append_sequenced(ports, sequenced(9, 0, producer_id=8), 3) == (False, closed), "a new producer"


def test_move_to_layout_changes_nothing_when_the_head_knows_that_layout_or_a_newer_one(ports: Ports) -> None:
    ports.log.create_head(KEY)
    opened = ports.log.move_to_layout(KEY, 3, None)
    assert opened == replace(EMPTY_HEAD, layout=3, has_push_waiter=True)
    assert ports.log.move_to_layout(KEY, 3, 1_000) == opened
    assert ports.log.move_to_layout(KEY, 2, 1_000) == opened
    assert ports.log.move_to_layout(PartitionKey(TopicId("t1"), Partition(1)), 4, 1_000) is None, "no head"


def test_offsets_go_on_when_a_head_opens_again(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.append(KEY, ref_at(1_000, span=3), 0)
    ports.log.move_to_layout(KEY, 1, 5_000)
    ports.log.create_head(KEY)
    ports.log.move_to_layout(KEY, 2, None)
    assert ports.log.append(KEY, ref_at(2_000, span=2), 0).head.next_offset == 5


def test_move_is_refused_when_a_head_is_closed(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.move_to_layout(KEY, 1, 5_000)
    with pytest.raises(PenstockError) as error:
        ports.transactions.move(Move(shares=[], deliveries=[], refs={KEY: [ref_at(1_000)]}, unconfirmed={}))
    assert code(error) == (ErrorCode.PARTITION_CLOSED, False)
    assert ports.log.heads([KEY])[KEY].next_offset == 0


def test_timers_are_delivered_when_the_head_is_closed(ports: Ports) -> None:
    ports.log.create_head(TIMED)
    [timer] = put(ports, 8_000)
    ports.log.move_to_layout(TIMED, 1, 5_000)
    assert ports.timers.promote(Delivery(key=TIMED, timers=[timer], now_ms=9_000)) is DeliveryOutcome.DONE
    head = ports.log.heads([TIMED])[TIMED]
    assert (head.next_offset, head.closed_ms) == (timer.ref.offset_span, 5_000)


def test_log_start_rises_when_the_head_is_closed(ports: Ports) -> None:
    ports.log.create_head(KEY)
    closed = ports.log.append(KEY, ref_at(1_000, span=3), 0).head
    ports.log.move_to_layout(KEY, 1, 5_000)
    assert ports.log.raise_log_start(KEY, Offset(3)).log_start_offset == closed.next_offset


def topic(partitions: int = 4) -> Topic:
    return Topic(name=TopicName("orders"), topic_id=TopicId("t1"), partitions=partitions, created_at_ms=1)


def test_topic_is_stored_with_its_layout(ports: Ports) -> None:
    draining = replace(topic(), writable=2, layout=1)
    create(ports, topic())
    ports.topics.replace(topic(), draining)
    assert ports.topics.get(topic().name) == draining
    for old, new in (
        (draining, draining.with_partitions(3)),
        (draining.with_partitions(3), draining.with_partitions(2)),
    ):
        ports.topics.retire(old, new)
        assert ports.topics.get(old.name) == new
        with pytest.raises(PenstockError) as error:
            ports.topics.retire(old, new)
        assert error.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.topics.get(topic().name) == replace(topic(2), layout=1, heads=4)


def test_topic_is_stored_with_its_generations(ports: Ports) -> None:
    waiting = replace(topic(), config=TopicConfig(ordering_on_change="wait"))
    create(ports, topic())
    ports.topics.replace(topic(), waiting)
    opening = waiting.with_opening(2)
    ports.topics.replace(waiting, opening)
    opened = opening.with_next_generation()
    ports.topics.open_generation(opening)
    with pytest.raises(PenstockError) as late:
        ports.topics.open_generation(opening)
    assert late.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.topics.get(topic().name) == opened
    assert (opened.generations, opened.partitions, opened.layout) == ((0, 4), 6, 1)
    for old in (topic(), waiting, opening):
        with pytest.raises(PenstockError) as error:
            ports.topics.replace(old, replace(old, layout=9))
        assert error.value.code is ErrorCode.CONCURRENT_UPDATE


def test_replace_is_refused_when_only_the_layout_has_changed(ports: Ports) -> None:
    create(ports, topic())
    once = replace(topic(), writable=2, layout=1)
    ports.topics.replace(topic(), once)
    again = replace(topic(), layout=2)
    ports.topics.replace(once, again)
    for old in (topic(), once):
        with pytest.raises(PenstockError) as error:
            ports.topics.replace(old, replace(old, writable=1, layout=3))
        assert error.value.code is ErrorCode.CONCURRENT_UPDATE


def test_appended_head_stays_as_it_was_otherwise() -> None:
    assert appended(replace(EMPTY_HEAD, layout=3), ref_at(1_000)).layout == 3


def test_generation_opens_and_leaves_a_setting_that_changed_meanwhile(ports: Ports) -> None:
    create(ports, topic())
    opening = replace(topic(), writable=2, layout=1).with_opening(3)
    ports.topics.replace(topic(), opening)
    changed = replace(opening, config=TopicConfig(retention_ms=7_200_000))
    ports.topics.replace(opening, changed)
    ports.topics.open_generation(opening)
    assert ports.topics.get(opening.name) == changed.with_next_generation()
