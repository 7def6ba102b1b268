"""What writes to the log leave in the tables: attributes that no port tells of, and the times when items expire."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionState
from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import (
    Offset,
)
from penstock_core.limits import PRODUCER_KEPT_MS
from penstock_core.log.delivery import Delivery
from penstock_core.log.index import HeadJump, Jump
from penstock_core.log.timer import cancelled, delivered
from penstock_core.quotas.bucket import BucketKey, fresh_bucket
from penstock_core.quotas.quota import Rate, Subject
from penstock_core.storage.compaction_item import STATE_KEPT_MS, compaction_key
from penstock_core.storage.head_item import owner_name, producer_item
from penstock_core.storage.item import number
from penstock_core.storage.quota_items import bucket_key
from penstock_core.storage.timer_item import timer_item
from penstock_core.transaction import (
    Move,
    Transaction,
    TransactionalProducer,
    TransactionState,
)
from penstock_service.adapters.dynamodb.timers import DynamoDbTimerStore
from tests.contract.test_log_index import KEY, owned, ref, sequenced
from tests.service.adapters.test_stored_items import HEAD, LEDGER, Stage
from tests.support.timers import timer_at


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_owner_of_a_producer_leaves_the_head_with_its_entry(stage: Stage) -> None:
    log = stage.stores["log"]
    log.create_head(KEY)
    for producer_id in (7, 8):
        wanted = owned(sequenced(1, 0, producer_id=producer_id), b"mine....")
        assert wanted.sequence is not None
        log.append_in_sequence(KEY, wanted, 0, wanted.sequence, None)
        assert stage.head(owner_name(producer_id)) is not None
    producers = log.heads([KEY])[KEY].producers
    assert log.remove_producers(KEY, producers)[0]
    assert [stage.head(owner_name(producer_id)) for producer_id in producers] == [None, None]


def test_head_that_opens_again_keeps_no_offset_of_its_end(stage: Stage) -> None:
    log = stage.stores["log"]
    log.create_head(KEY)
    log.append(KEY, ref(1), 0)
    log.move_to_layout(KEY, 1, 5)
    assert stage.head("closed_offset") == number(3)
    timer = timer_at(KEY, 1_000)
    stage.stores["timers"].put(timer)
    stage.stores["timers"].promote(Delivery(key=KEY, timers=[timer], now_ms=2_000))
    log.move_to_layout(KEY, 2, 6)
    assert stage.head("closed_offset") == number(3), "where it was closed first"
    log.move_to_layout(KEY, 3, None)
    assert stage.head("closed_offset") is None


def appends(stage: Stage) -> dict[str, Any]:
    """Each way to append to the head of KEY whose segment zone 2 lacks."""
    log, transactions = stage.stores["log"], stage.stores["transactions"]
    transactions.begin_epoch(LEDGER, None, TransactionState(producer_id=7, epoch=0, expires_at_s=9))
    wanted, unconfirmed = sequenced(1, 0), 0b100
    assert wanted.sequence is not None
    producer = TransactionalProducer(transactional_id=LEDGER, epoch=0)
    transaction = Transaction(
        producer=producer, number=0, expires_at_s=9, refs={KEY: [ref(1)]}, unconfirmed={KEY: unconfirmed}
    )
    jump = HeadJump(
        seen_next_offset=Offset(0), jumps=(Jump(start=Offset(0), end=Offset(6)),), refs=(ref(2, span=6),), restore="r"
    )
    return {
        "append": lambda: log.append(KEY, ref(1), unconfirmed),
        "append_in_sequence": lambda: log.append_in_sequence(KEY, wanted, unconfirmed, wanted.sequence, None),
        "jump": lambda: log.jump(KEY, jump, unconfirmed),
        "commit": lambda: transactions.commit(transaction),
        "move": lambda: transactions.move(Move(refs={KEY: [ref(1)]}, unconfirmed={KEY: unconfirmed})),
    }


@pytest.mark.parametrize("how", ["append", "append_in_sequence", "jump", "commit", "move"])
def test_append_tells_the_stream_which_zones_are_to_be_repaired(stage: Stage, how: str) -> None:
    """The function `replicate` gets the updates that set `under_replicated`. Both waiters go with the append."""
    log = stage.stores["log"]
    log.create_head(KEY)
    log.arm(KEY, Offset(0), 5)
    log.arm_push(KEY, Offset(0))
    assert stage.head("waiter") == number(5)
    appends(stage)[how]()
    assert stage.head("under_replicated") == number(0b100)
    assert stage.head("push_waiter") == number(0)
    if how.startswith("append"):
        assert stage.head("waiter") is None


def test_update_without_a_new_segment_does_not_wake_the_repair_again(stage: Stage) -> None:
    log, timer = stage.stores["log"], timer_at(KEY, 1_000)
    log.create_head(KEY)
    stage.stores["timers"].put(timer)
    log.append(KEY, replace(ref(1), zones=0b011), 0b100)
    [located] = log.heads([KEY])[KEY].located_tail()
    marked = replace(located.ref, zones=0b111)
    move = TailMove(tail_base=Offset(0), end_offset=Offset(3), old={0: marked}, new={0: marked}, moved_ms=5)
    updates: list[Any] = [
        lambda: log.arm(KEY, Offset(3), 5),
        lambda: log.arm_push(KEY, Offset(3)),
        lambda: log.move_to_layout(KEY, 1, None),
        lambda: log.count_reader(KEY),
        lambda: log.mark_stored(KEY, {located: 0b100}),
        lambda: stage.stores["compaction"].move_tail(KEY, move),
        lambda: stage.stores["timers"].promote(Delivery(key=KEY, timers=[timer], now_ms=2_000)),
    ]
    for update in updates:
        stage.change("log", HEAD, lambda head: {**head, "under_replicated": number(0b100)})
        assert update()
        assert stage.head("under_replicated") == number(0)


def test_items_that_expire_have_the_end_that_belongs_to_their_change(stage: Stage) -> None:
    compaction, like = stage.stores["compaction"], compaction_key(KEY)
    compaction.acquire(KEY, 1_000, 2_000)
    assert stage.item("log", like)["expires_at_s"] == number((2_000 + STATE_KEPT_MS) // 1_000)
    assert compaction.save(KEY, CompactionState(epoch=1, deadline_ms=9_000))
    assert stage.item("log", like)["expires_at_s"] == number((9_000 + STATE_KEPT_MS) // 1_000)

    bucket = BucketKey(subject=Subject.TOPIC, name="t1", rate=Rate.FETCH_BYTES)
    fresh = fresh_bucket(1_000, 10, 0)
    stage.stores["quotas"].begin(bucket, None, fresh)
    stage.stores["quotas"].charge(bucket, fresh, 1, 50_000)
    like = bucket_key(bucket.subject, bucket.name, bucket.rate)
    assert stage.item("groups", like)["expires_at_s"] == number(50 + 86_400)


def test_timer_is_written_whole_when_it_is_settled(stage: Stage) -> None:
    timers = [timer_at(KEY, due) for due in (1_000, 2_000)]
    stage.stores["log"].create_head(KEY)
    for timer in timers:
        stage.stores["timers"].put(timer)
    assert stage.stores["timers"].cancel(KEY, timers[0].place, 5_000)
    stage.stores["timers"].promote(Delivery(key=KEY, timers=timers[1:], now_ms=6_000))
    for mark in (cancelled(timers[0], 5_000), delivered(timers[1], 6_000)):
        assert stage.item("log", timer_item(mark)) == timer_item(mark)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_cancel_changes_nothing_when_the_timer_went_after_it_was_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    timer, mark = timer_at(KEY, 1_000), delivered(timer_at(KEY, 1_000), 2_000)
    stage.stores["log"].create_head(KEY)
    timers = DynamoDbTimerStore(stage.client, "log")
    timers.put(timer)
    read = timers.get

    def get(*arguments: Any) -> Any:
        found = read(*arguments)
        if is_deleted:
            timers.delete(KEY, timer.place)
        else:
            timers.promote(Delivery(key=KEY, timers=[timer], now_ms=2_000))
        return found

    monkeypatch.setattr(timers, "get", get)
    assert timers.cancel(KEY, timer.place, 5_000) == (None if is_deleted else mark)
    assert stage.item("log", timer_item(timer)) == ({} if is_deleted else timer_item(mark))


def test_evicted_producer_is_kept_from_its_last_eviction_on(stage: Stage) -> None:
    log = stage.stores["log"]
    wanted = sequenced(1, 0)
    log.create_head(KEY)
    assert wanted.sequence is not None
    log.append_in_sequence(KEY, wanted, 0, wanted.sequence, None)
    [(producer_id, state)] = log.heads([KEY])[KEY].producers.items()
    for evicted_ms, kept_from_ms in ((20_000, 20_000), (30_000, 30_000), (10_000, 30_000)):
        log.put_evicted(KEY, producer_id, state, evicted_ms)
        item = producer_item(KEY, producer_id, state, kept_from_ms)
        assert item["expires_at_s"] == number((kept_from_ms + PRODUCER_KEPT_MS) // 1_000)
        assert stage.item("log", item) == item
