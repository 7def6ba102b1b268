"""The contract of TransactionStore, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken
from penstock_core.ids import (
    NO_NONCE,
    GroupName,
    MemberName,
    Nonce,
    Offset,
    Partition,
    PartitionKey,
    ShareGroupId,
    TopicId,
    TopicName,
    TransactionalId,
)
from penstock_core.log.index import EMPTY_HEAD, appended
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.share.acknowledge import AckType, plan_acknowledge
from penstock_core.share.acquire import plan_acquire
from penstock_core.share.share_state import ShareKey
from penstock_core.storage.transaction_items import StagedRef
from penstock_core.transaction import (
    DeliveryCommit,
    Move,
    OffsetCommit,
    ShareCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
)
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, OTHER, ref
from tests.core.push.push_samples import DELIVERY
from tests.core.share.share_samples import NOW_MS, PLAIN, ack, log, request
from tests.support.group_commits import commits_of

NAME = TransactionalId("ledger")
FIRST = TransactionState(producer_id=7, epoch=0, expires_at_s=9_000_000)
USED_S = 9_000_100  # the end of the id after a commit
PRODUCER = TransactionalProducer(transactional_id=NAME, epoch=0)
NONCE, OTHER_NONCE = Nonce(b"n" * 16), Nonce(b"o" * 16)
GROUP = GroupName("readers")
SHARE = ShareKey(ShareGroupId("ab" * 10), TopicId("t0"), Partition(3))
OTHER_SHARE = SHARE._replace(partition=Partition(4))
SOURCE = PartitionKey(TopicId("t0"), Partition(3))


def offset_commit(offset: int, token: LeaseToken | None = None, *, may_create: bool = True) -> OffsetCommit:
    committed = CommittedOffset(
        topic=TopicName("orders"), partition=SOURCE, offset=Offset(offset), metadata="", committed_at_ms=5
    )
    return OffsetCommit(group=GROUP, committed=committed, token=token, may_create=may_create)


def transaction(number: int = 0, **changes: object) -> Transaction:
    whole = Transaction(
        producer=PRODUCER,
        number=number,
        expires_at_s=USED_S,
        refs={KEY: [ref(10 + number), ref(20 + number)], OTHER: [ref(20 + number)]},
        offsets=[offset_commit(number + 1)],
    )
    return replace(whole, **changes)  # type: ignore[arg-type]  # fields of many types


@pytest.fixture
def ready(ports: Ports) -> Ports:
    ports.log.create_head(KEY)
    ports.log.create_head(OTHER)
    ports.transactions.begin_epoch(NAME, None, FIRST)
    return ports


def code_of(ports: Ports, wanted: Transaction) -> ErrorCode:
    with pytest.raises(PenstockError) as caught:
        ports.transactions.commit(wanted)
    assert not caught.value.maybe_applied
    return caught.value.code


def expect_nothing(ports: Ports) -> None:
    assert ports.log.heads([KEY, OTHER]) == {KEY: EMPTY_HEAD, OTHER: EMPTY_HEAD}
    assert ports.transactions.get(NAME) == FIRST


def test_begin_epoch_is_refused_when_somebody_else_has_begun(ports: Ports) -> None:
    assert ports.transactions.get(NAME) is None
    ports.transactions.begin_epoch(NAME, None, FIRST)
    second = replace(FIRST, epoch=1)
    with pytest.raises(PenstockError) as caught:
        ports.transactions.begin_epoch(NAME, None, second)
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.transactions.begin_epoch(NAME, FIRST, second) == second
    with pytest.raises(PenstockError):
        ports.transactions.begin_epoch(NAME, FIRST, second)
    assert ports.transactions.get(NAME) == second


def test_begin_epoch_leaves_the_last_transaction(ready: Ports) -> None:
    """Even if it was committed after the state was read that the epoch follows."""
    assert ready.transactions.commit(transaction())
    found = ready.transactions.begin_epoch(NAME, FIRST, replace(FIRST, epoch=1))
    assert (found.epoch, found.number, len(found.segments)) == (1, 0, 2)
    assert not ready.transactions.commit(transaction(1))
    assert ready.transactions.commit(transaction(1, producer=replace(PRODUCER, epoch=1)))


def test_commit_makes_all_visible_at_once(ready: Ports) -> None:
    wanted = transaction()
    assert ready.transactions.commit(wanted)
    heads = ready.log.heads([KEY, OTHER])
    assert heads == {KEY: appended(appended(EMPTY_HEAD, ref(10)), ref(20)), OTHER: appended(EMPTY_HEAD, ref(20))}
    assert [each.offset for each in commits_of(ready.groups, GROUP)] == [1]
    expected = replace(FIRST, number=0, expires_at_s=USED_S, segments=(ref(10).segment_id, ref(20).segment_id))
    assert ready.transactions.get(NAME) == expected


def test_commit_is_refused_when_it_was_done_before(ready: Ports) -> None:
    assert ready.transactions.commit(transaction())
    heads = ready.log.heads([KEY, OTHER])
    assert not ready.transactions.commit(transaction())
    assert not ready.transactions.commit(transaction(2)), "1 is missing"
    assert ready.log.heads([KEY, OTHER]) == heads
    assert ready.transactions.commit(transaction(1))


def test_commit_is_refused_when_a_newer_epoch_has_begun(ready: Ports) -> None:
    second = replace(FIRST, epoch=1)
    ready.transactions.begin_epoch(NAME, FIRST, second)
    assert not ready.transactions.commit(transaction())
    assert not ready.transactions.commit(transaction(producer=replace(PRODUCER, epoch=2)))
    assert ready.log.heads([KEY])[KEY] == EMPTY_HEAD
    assert ready.transactions.commit(transaction(producer=replace(PRODUCER, epoch=1)))


def test_commit_leaves_nothing_when_a_partition_is_gone(ready: Ports) -> None:
    gone = PartitionKey(TopicId("t9"), Partition(0))
    wanted = transaction(refs={KEY: [ref(1)], gone: [ref(1)]})
    assert code_of(ready, wanted) is ErrorCode.UNKNOWN_PARTITION
    expect_nothing(ready)


def test_commit_that_may_not_create_needs_a_lease(ready: Ports) -> None:
    wanted = transaction(offsets=[offset_commit(1, may_create=False)])
    assert code_of(ready, wanted) is ErrorCode.UNKNOWN_GROUP
    expect_nothing(ready)
    assert commits_of(ready.groups, GROUP) == []
    assert ready.transactions.commit(transaction())
    assert ready.transactions.commit(transaction(1, offsets=[offset_commit(2, may_create=False)]))
    assert [each.offset for each in commits_of(ready.groups, GROUP)] == [2]


def test_commit_takes_offsets_of_the_leases_owner_only(ready: Ports) -> None:
    lease = Lease(topic=TopicName("orders"), partition=SOURCE)
    owner = MemberName("m1")
    epoch = ready.groups.take_lease(GROUP, lease, owner, 1).epoch
    assert code_of(ready, transaction()) is ErrorCode.LEASE_HELD
    for token in (LeaseToken(owner=owner, epoch=epoch + 1), LeaseToken(owner=MemberName("m2"), epoch=epoch)):
        assert code_of(ready, transaction(offsets=[offset_commit(1, token)])) is ErrorCode.LEASE_FENCED
    expect_nothing(ready)
    assert commits_of(ready.groups, GROUP) == []
    right = LeaseToken(owner=owner, epoch=epoch)
    assert ready.transactions.commit(transaction(offsets=[offset_commit(1, right)]))
    assert [each.offset for each in commits_of(ready.groups, GROUP)] == [1]


def test_stages_come_back_in_order_and_the_last_of_each(ready: Ports) -> None:
    first, second = ([StagedRef("orders", KEY, ref(number))] for number in (1, 2))
    for nonce in (NO_NONCE, NONCE):
        for stage, refs in ((1, first), (0, first), (1, second)):
            ready.transactions.put_stage(PRODUCER, 4, nonce, stage, refs, 1_000)
        ready.transactions.put_stage(PRODUCER, 5, nonce, 0, second, 1_000)
        ready.transactions.put_stage(replace(PRODUCER, epoch=1), 4, nonce, 0, second, 1_000)
        assert list(ready.transactions.stages(PRODUCER, 4, nonce)) == [first, second]
        assert list(ready.transactions.stages(PRODUCER, 6, nonce)) == []


def test_stage_of_another_transaction_with_the_same_number_stays_apart(ready: Ports) -> None:
    mine, late = ([StagedRef("orders", KEY, ref(number))] for number in (1, 2))
    ready.transactions.put_stage(PRODUCER, 4, NONCE, 0, mine, 1_000)
    ready.transactions.put_stage(PRODUCER, 4, OTHER_NONCE, 0, late, 1_000)
    ready.transactions.put_stage(PRODUCER, 4, NO_NONCE, 0, late, 1_000)
    assert list(ready.transactions.stages(PRODUCER, 4, NONCE)) == [mine]


@pytest.fixture
def shared(ready: Ports) -> Ports:
    """Two share items, each with a lock on [0, 10)."""
    for key in (SHARE, OTHER_SHARE):
        state = ready.share.create_state(key, Offset(0))
        plan = plan_acquire(state, PLAIN, log(), request())
        assert plan.update is not None
        assert ready.share.update(key, plan.update).is_applied
    return ready


def accepting(ports: Ports, key: ShareKey, *ranges: tuple[int, int]) -> ShareCommit:
    state = ports.share.find_states([key])[key]
    update = plan_acknowledge(state, PLAIN, [ack(AckType.ACCEPT, *ranges)], NOW_MS).update
    assert update is not None
    return ShareCommit(key=key, update=update)


def open_in(ports: Ports) -> list[int]:
    states = ports.share.find_states([SHARE, OTHER_SHARE])
    return [states[key].open for key in (SHARE, OTHER_SHARE)]


def test_commit_accepts_records_of_share_groups(shared: Ports) -> None:
    wanted = transaction(shares=[accepting(shared, SHARE, (0, 4)), accepting(shared, OTHER_SHARE)])
    assert shared.transactions.commit(wanted)
    assert open_in(shared) == [6, 0]
    assert not shared.transactions.commit(wanted)
    assert open_in(shared) == [6, 0]


def test_commit_leaves_nothing_when_a_lock_is_lost(shared: Ports) -> None:
    stale = accepting(shared, OTHER_SHARE)
    release = plan_acknowledge(
        shared.share.find_states([OTHER_SHARE])[OTHER_SHARE], PLAIN, [ack(AckType.RELEASE, (9, 10))], NOW_MS
    ).update
    assert release is not None
    assert shared.share.update(OTHER_SHARE, release).is_applied
    assert code_of(shared, transaction(shares=[accepting(shared, SHARE), stale])) is ErrorCode.LOCK_LOST
    expect_nothing(shared)
    assert open_in(shared) == [10, 10]


def test_move_appends_and_takes_the_records_out_of_the_share_item_once(shared: Ports) -> None:
    move = Move(shares=[accepting(shared, SHARE, (2, 3))], refs={KEY: [ref(7), ref(8)]}, unconfirmed={KEY: 4})
    assert shared.transactions.move(move).is_applied
    expected = appended(appended(EMPTY_HEAD, ref(7)), ref(8))
    assert shared.log.heads([KEY])[KEY] == expected
    assert open_in(shared) == [9, 10]
    assert not shared.transactions.move(move).is_applied
    assert shared.log.heads([KEY])[KEY] == expected
    assert open_in(shared) == [9, 10]


def test_move_leaves_nothing_when_a_partition_is_gone(shared: Ports) -> None:
    gone = PartitionKey(TopicId("t9"), Partition(0))
    move = Move(shares=[accepting(shared, SHARE)], refs={KEY: [ref(7)], gone: [ref(8)]})
    with pytest.raises(PenstockError) as caught:
        shared.transactions.move(move)
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION
    expect_nothing(shared)
    assert open_in(shared) == [10, 10]


def delivery_of(ports: Ports) -> DeliveryState | None:
    return ports.push.find_deliveries([DELIVERY]).get(DELIVERY)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_move_appends_and_stores_the_state_of_a_delivery_once(ready: Ports, version: int) -> None:
    """The first state of a partition is put; later ones change it, with or without a trouble before."""
    failed = DeliveryState(offset=Offset(5), trouble=Trouble(first_failed_ms=3, range_end=Offset(9)))
    for before in (failed, replace(failed, version=2))[: version - 1]:
        assert ready.push.put_delivery(DELIVERY, before) == before
    state = DeliveryState(offset=Offset(7), version=version)
    move = Move(deliveries=[DeliveryCommit(key=DELIVERY, state=state)], refs={KEY: [ref(7)], OTHER: [ref(8)]})
    assert ready.transactions.move(move).is_applied
    expected = {KEY: appended(EMPTY_HEAD, ref(7)), OTHER: appended(EMPTY_HEAD, ref(8))}
    assert ready.log.heads([KEY, OTHER]) == expected
    assert delivery_of(ready) == state
    assert not ready.transactions.move(move).is_applied, "the stored state tells that it is done"
    assert ready.log.heads([KEY, OTHER]) == expected
    assert delivery_of(ready) == state


def test_move_is_refused_whole_when_one_of_its_states_is_not_the_next(shared: Ports) -> None:
    first, other = DeliveryState(offset=Offset(5)), replace(DELIVERY, partition=Partition(9))
    shared.push.put_delivery(DELIVERY, first)
    for stale in (first, replace(first, version=3)):
        fresh = DeliveryCommit(key=other, state=DeliveryState(offset=Offset(1)))
        refused = DeliveryCommit(key=DELIVERY, state=stale)
        move = Move(shares=[accepting(shared, SHARE)], deliveries=[fresh, refused], refs={KEY: [ref(7)]})
        assert not shared.transactions.move(move).is_applied
        expect_nothing(shared)
        assert open_in(shared) == [10, 10]
        assert shared.push.find_deliveries([DELIVERY, other]) == {DELIVERY: first}


def test_move_leaves_the_state_when_a_partition_is_gone(ready: Ports) -> None:
    gone = PartitionKey(TopicId("t9"), Partition(0))
    commit = DeliveryCommit(key=DELIVERY, state=DeliveryState(offset=Offset(1)))
    with pytest.raises(PenstockError) as caught:
        ready.transactions.move(Move(deliveries=[commit], refs={KEY: [ref(7)], gone: [ref(8)]}))
    assert caught.value.code is ErrorCode.UNKNOWN_PARTITION
    assert delivery_of(ready) is None
    assert ready.log.heads([KEY])[KEY] == EMPTY_HEAD


def test_state_keeps_nonces_and_principal(ports: Ports) -> None:
    first = replace(FIRST, begins=(NONCE,), principal="role")
    assert ports.transactions.begin_epoch(NAME, None, first) == first
    ports.log.create_head(KEY)
    ports.log.create_head(OTHER)
    owner = replace(PRODUCER, principal="role")
    assert ports.transactions.commit(transaction(producer=owner, nonce=OTHER_NONCE))
    found = ports.transactions.get(NAME)
    assert found is not None
    assert (found.nonce, found.begins, found.principal) == (OTHER_NONCE, (NONCE,), "role")
    second = replace(found, epoch=1, begins=(OTHER_NONCE, NONCE), nonce=NO_NONCE)
    assert ports.transactions.begin_epoch(NAME, found, second) == replace(second, nonce=OTHER_NONCE)


def test_commit_is_refused_when_the_id_belongs_to_another_principal(ready: Ports) -> None:
    bound = replace(FIRST, epoch=1, principal="role")
    ready.transactions.begin_epoch(NAME, FIRST, bound)
    for stranger in ("", "another role"):
        assert not ready.transactions.commit(transaction(producer=replace(PRODUCER, epoch=1, principal=stranger)))
    assert ready.log.heads([KEY])[KEY] == EMPTY_HEAD
    assert ready.transactions.commit(transaction(producer=replace(PRODUCER, epoch=1, principal="role")))


def test_released_id_belongs_to_nobody(ports: Ports) -> None:
    assert not ports.transactions.release(NAME)
    assert ports.transactions.get(NAME) is None
    bound = replace(FIRST, principal="role")
    ports.transactions.begin_epoch(NAME, None, bound)
    assert ports.transactions.release(NAME)
    assert ports.transactions.get(NAME) == FIRST


@pytest.fixture
def forgotten(ready: Ports) -> Ports:
    ready.forget(NAME)
    return ready


def test_forgotten_id_takes_no_commit_and_no_release(forgotten: Ports) -> None:
    assert forgotten.transactions.get(NAME) is None
    assert not forgotten.transactions.commit(transaction())
    assert not forgotten.transactions.release(NAME)
    assert not forgotten.transactions.renew(PRODUCER, USED_S)
    assert forgotten.transactions.get(NAME) is None
    assert forgotten.log.heads([KEY])[KEY] == EMPTY_HEAD


def test_epoch_of_a_forgotten_id_follows_none(forgotten: Ports) -> None:
    """An instance read the state, and it was removed before the instance wrote."""
    with pytest.raises(PenstockError) as caught:
        forgotten.transactions.begin_epoch(NAME, FIRST, replace(FIRST, epoch=1))
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    anew = TransactionState(producer_id=8, epoch=0, number=500, expires_at_s=USED_S)
    assert forgotten.transactions.begin_epoch(NAME, None, anew) == anew
    assert not forgotten.transactions.commit(transaction()), "the zombie has the same epoch, and a lower number"
    assert forgotten.transactions.commit(transaction(501))


def test_renewed_id_ends_later_while_its_epoch_is_the_newest(ready: Ports) -> None:
    assert ready.transactions.renew(PRODUCER, USED_S)
    assert ready.transactions.get(NAME) == replace(FIRST, expires_at_s=USED_S)
    second = replace(FIRST, epoch=1)
    assert ready.transactions.begin_epoch(NAME, FIRST, second) == second
    assert not ready.transactions.renew(PRODUCER, USED_S)
    assert ready.transactions.get(NAME) == second
