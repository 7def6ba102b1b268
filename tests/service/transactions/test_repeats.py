"""Repeats of begins, stages and commits: each is recognised by its nonce, and answered as the first time."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NO_NONCE, Nonce, TransactionalId
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT, TRANSACTION_MS_MAX
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets, committed_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.transactions.begin_transactions import (
    CommittedRange,
    TransactionPart,
    begin_transactions,
    release_transactional_id,
)
from penstock_service.transactions.commit_transaction import OffsetEntry, commit_transaction, stage
from tests.support.group_member import GroupMember
from tests.support.refusals import refused
from tests.support.service import (
    START_MS,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    entry,
    head_of,
    new_topic,
    read_all,
)

NAME = TransactionalId("ledger")
PRODUCER = TransactionalProducer(transactional_id=NAME, epoch=0)
A, B, C = (Nonce(name * 16) for name in (b"a", b"b", b"c"))


def begin(instance: Instance, nonce: Nonce = NO_NONCE, last: TransactionState | None = None) -> TransactionState:
    pair = None if last is None else (last.producer_id, last.epoch)
    wish = Begin(nonce=nonce, last=pair, principal="role")
    return begin_transactions(instance, NAME, wish)


def part_of(number: int, nonce: Nonce, *entries: ProduceEntry, epoch: int = 0) -> TransactionPart:
    producer = TransactionalProducer(transactional_id=NAME, epoch=epoch, principal="role")
    number += START_MS  # the first begin is then
    return TransactionPart(producer=producer, number=number, entries=entries, acks=Acks.QUORUM, nonce=nonce)


def commit(instance: Instance, part: TransactionPart, *offsets: OffsetEntry, stages: int = 0) -> list[CommittedRange]:
    return commit_transaction(instance, part, offsets, stages)


def offsets_of(found: list[CommittedRange]) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.base_offset, each.next_offset) for each in found]


def test_begin_that_comes_again_begins_once(instance: Instance) -> None:
    first = begin(instance, A)
    assert begin(instance, A) == first
    commit(instance, part_of(0, B, entry(new_topic(instance), 0, batch("a"))))
    assert (begin(instance, A).epoch, begin(instance, A).number) == (0, START_MS)


def test_begin_that_comes_again_at_the_same_time_begins_once(instance: Instance) -> None:
    def overtaken(original: Any, *arguments: Any) -> TransactionState:
        begin(instance, A)
        state: TransactionState = original(*arguments)
        return state

    slow = another_instance(instance, transactions=Intercepted(instance.stores.transactions, begin_epoch=overtaken))
    assert begin(slow, A).epoch == begin(instance, A).epoch == 0


def test_instance_that_another_has_taken_over_from_cannot_begin_again(instance: Instance) -> None:
    mine = begin(instance, A)
    begin(instance, B)
    refused(ErrorCode.PRODUCER_FENCED, lambda: begin(instance, C, mine))
    refused(ErrorCode.PRODUCER_FENCED, lambda: begin(instance, A))
    again = begin(instance, C)
    assert again.epoch == 2, "a new instance begins whatever there is"
    assert begin(instance, Nonce(b"d" * 16), again).epoch == 3


def test_commit_is_known_by_its_nonce_not_by_its_number(instance: Instance) -> None:
    topic = new_topic(instance)
    begin(instance)
    mine, others = entry(topic, 0, batch("mine")), entry(topic, 0, batch("other"))
    first = commit(instance, part_of(0, A, mine))
    begin(instance)
    assert commit(instance, part_of(0, A, mine)) == first, "a newer epoch does not undo it"
    refused(ErrorCode.PRODUCER_FENCED, lambda: commit(instance, part_of(0, B, others)))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: commit(instance, part_of(0, B, others, epoch=1)))
    assert read_all(instance, topic) == [(0, "mine")]


def test_commit_that_was_applied_is_answered_as_then_when_it_would_be_refused_now(
    instance: Instance, clock: SteppedClock
) -> None:
    for topic in ("orders", "bills"):
        new_topic(instance, topic)
    begin(instance)
    stage(instance, part_of(0, A, entry("orders", 0, batch("a", "b"))), 0)
    last = part_of(0, A, entry("bills", 0, batch("c")), entry("orders", 0, batch("d")))
    first = commit(instance, last, stages=1)
    assert offsets_of(first) == [("orders", 0, 0, 3), ("bills", 0, 0, 1)]
    clock.time_ms += TRANSACTION_MS_MAX + 1
    assert commit(instance, last, stages=1) == first

    def away(*_: object) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the zone is away")

    zones = [Intercepted(zone, put=away) for zone in instance.stores.zones]
    assert commit(another_instance(instance, zones=zones), last, stages=1) == first
    delete_topic(instance, "bills")
    assert commit(another_instance(instance), last, stages=1) == first[:1]


def test_repeat_that_would_be_refused_now_tells_retention_of_its_places(instance: Instance) -> None:
    new_topic(instance, "orders", retention="acknowledged")
    new_topic(instance, "output")
    begin(instance)
    offset = OffsetEntry(group="g", topic="orders", partition=0, offset=0, may_create=True)
    part = part_of(0, A, entry("output", 0, batch("a")))
    commit(instance, part, offset)
    changes = head_of(instance, "orders").reader_changes
    delete_topic(instance, "output")
    assert not commit(instance, part, offset), "its only topic is gone"
    assert head_of(instance, "orders").reader_changes == changes + 1


def test_late_stage_of_an_aborted_transaction_stays_out_of_the_next(instance: Instance) -> None:
    topic = new_topic(instance)
    begin(instance)
    stage(instance, part_of(0, B, entry(topic, 0, batch("committed"))), 0)
    stage(instance, part_of(0, A, entry(topic, 0, batch("aborted"))), 0)
    commit(instance, part_of(0, B), stages=1)
    assert read_all(instance, topic) == [(0, "committed")]


def test_commit_looks_a_topic_up_again_when_its_remembered_head_is_gone(instance: Instance) -> None:
    topic = new_topic(instance)
    begin(instance)
    warm = another_instance(instance)
    commit(warm, part_of(0, A, entry(topic, 0, batch("old"))))
    delete_topic(instance, topic)
    new_topic(instance, topic)
    assert offsets_of(commit(warm, part_of(1, B, entry(topic, 0, batch("new"))))) == [(topic, 0, 0, 1)]
    assert read_all(instance, topic) == [(0, "new")]
    delete_topic(instance, topic)
    refused(ErrorCode.UNKNOWN_TOPIC, lambda: commit(warm, part_of(2, C, entry(topic, 0, batch("gone")))))


@pytest.mark.parametrize("has_left", [True, False], ids=["left", "expired"])
def test_transaction_commits_for_a_group_whose_last_member_is_gone(
    instance: Instance, clock: SteppedClock, has_left: bool
) -> None:
    topic = new_topic(instance)
    begin(instance)
    member = GroupMember(instance, "m1", topics=(topic,), group="readers")
    member.settle()
    member.commit(0, 5, topic)
    offset = OffsetEntry(group="readers", topic=topic, partition=0, offset=7)
    refused(ErrorCode.LEASE_HELD, lambda: commit(instance, part_of(0, A, entry(topic, 0, batch("a"))), offset))
    [lease] = member.held.values()
    if has_left:
        member.leave()
    else:
        clock.time_ms += SESSION_TIMEOUT_MS_DEFAULT + 1
    commit(instance, part_of(0, A, entry(topic, 0, batch("a"))), offset)
    assert read_all(instance, topic) == [(0, "a")]
    assert [each.offset for each in committed_offsets(instance, "readers", None)] == [7]
    late = CommitEntry(topic=topic, partition=0, offset=6, lease_epoch=lease.epoch)
    [told] = commit_offsets(instance, "readers", [late], "m1")
    assert isinstance(told, PenstockError)
    assert told.code is ErrorCode.LEASE_FENCED


def test_lease_that_was_taken_away_keeps_its_offset_when_the_transaction_is_refused(instance: Instance) -> None:
    topic = new_topic(instance)
    begin(instance)
    member = GroupMember(instance, "m1", topics=(topic,), group="readers")
    member.settle()
    member.commit(0, 5, topic)
    member.leave()
    mine = OffsetEntry(group="readers", topic=topic, partition=0, offset=7)
    fenced = OffsetEntry(group="others", topic=topic, partition=0, offset=7, member_id="m2", lease_epoch=1)
    refused(ErrorCode.LEASE_FENCED, lambda: commit(instance, part_of(0, A), mine, fenced))
    assert [each.offset for each in committed_offsets(instance, "readers", None)] == [5]


@pytest.mark.parametrize("principal", ["", "another role"])
def test_id_of_another_principal_is_refused_until_it_is_released(instance: Instance, principal: str) -> None:
    topic = new_topic(instance)
    begin(instance)
    stranger = TransactionalProducer(transactional_id=NAME, epoch=0, principal=principal)
    part = TransactionPart(
        producer=stranger, number=START_MS, entries=[entry(topic, 0, batch("x"))], acks=Acks.QUORUM, nonce=A
    )
    wish = Begin(nonce=B, principal=principal)

    def begin_as_stranger() -> TransactionState:
        return begin_transactions(instance, NAME, wish)

    for call in (lambda: commit(instance, part), lambda: stage(instance, part, 0), begin_as_stranger):
        error = refused(ErrorCode.ACCESS_DENIED, call)
        assert "'ledger'" in error.message
        assert "/v1/producers/ledger/release" in error.message
    release_transactional_id(instance.stores.transactions, NAME)
    assert begin_as_stranger().epoch == 1
    if principal:
        refused(ErrorCode.ACCESS_DENIED, lambda: begin(instance))
    refused(ErrorCode.UNKNOWN_PRODUCER, lambda: release_transactional_id(instance.stores.transactions, "nobody"))
