"""What the stores leave in the tables: attributes that no port tells of, and all attributes of an item that changes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock_core.groups.group import (
    GroupConfig,
    GroupDocument,
    GroupState,
    Member,
    MemberProgress,
    SessionTouch,
    Subscription,
    parse_subscription,
)
from penstock_core.groups.lease import CommittedOffset, Lease
from penstock_core.ids import (
    GroupName,
    LockId,
    MemberName,
    Offset,
    Partition,
    ShareGroupId,
    TopicId,
    TopicName,
    TransactionalId,
    ZoneName,
)
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.topic import DeletedTopic, Topic, TopicConfig, note_of
from penstock_core.push.delivery import DeliveryState, Trouble, Window
from penstock_core.push.lane import LaneState
from penstock_core.share.draft import ShareUpdate, apply
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroup, new_share_group_config
from penstock_core.share.share_state import Lock, ShareKey, Wait
from penstock_core.storage.groups.group_item import group_item, registered_key
from penstock_core.storage.groups.lease_item import lease_item_key
from penstock_core.storage.groups.member_item import member_item
from penstock_core.storage.head_item import head_key
from penstock_core.storage.item import Item
from penstock_core.storage.push.delivery_item import delivery_item, lane_item
from penstock_core.storage.push.subscription_item import subscription_item
from penstock_core.storage.share.share_group_item import share_group_item
from penstock_core.storage.share.share_state_item import share_item
from penstock_core.storage.topic_item import deleted_topic_item, topic_item
from penstock_core.storage.transaction_items import state_key
from penstock_core.storage.zone_states_item import catch_up_pass_item
from penstock_core.transaction import (
    DeliveryCommit,
    Move,
    OffsetCommit,
    ShareCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
)
from penstock_core.zones.zone_state import CatchUpPass, Cursor, Progress
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import TableStores, table_stores
from penstock_service.adapters.system import SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import Tables
from tests.contract.test_log_index import KEY
from tests.core.push.push_samples import DELIVERY, FULL, LANE, PLAIN

GROUP = GroupName("billing")
ORDERS = TopicName("orders")
HEAD = head_key(KEY)
LEDGER = TransactionalId("ledger")
SHARE = ShareKey(ShareGroupId("ab" * 10), TopicId("t0"), Partition(3))
A, B = LockId("nonce-01.0"), LockId("nonce-02.0")


class Stage:
    """All stores on tables in memory, and the items as they are stored."""

    def __init__(self) -> None:
        self._tables = Tables(lambda: 0)
        self.client = DynamoDbClient(self._tables, SystemClock(), SystemEntropy())
        self.stores: TableStores = table_stores(self.client)

    def item(self, table: str, like: Item) -> Item:
        """The stored item that has the key of this one. Empty if there is none."""
        key = {name: like[name] for name in ("pk", "sk")}
        found: Item = self._tables.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {})
        return found

    def head(self, name: str) -> Any:
        """An attribute of the head of KEY. None if it is missing."""
        return self.item("log", HEAD).get(name)

    def change(self, table: str, like: Item, change: Callable[[Item], Item]) -> None:
        """Exchanges the stored item that has the key of this one."""
        self._tables.put_item(TableName=table, Item=change(self.item(table, like)))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_group_is_written_whole(stage: Stage) -> None:
    bare = GroupState(name=GROUP, version=1)
    full = GroupState(
        name=GROUP,
        version=2,
        epoch=3,
        target_id="ab",
        member_count=4,
        config=GroupConfig(assignor="range"),
        next_check_ms=5,
        changed_at_ms=6,
        created_at_ms=5,
        empty_since_ms=7,
        document=GroupDocument(protocol_type="connect", member_count=2, data=b"d"),
    )
    memberships = stage.stores["memberships"]
    for old, new in ((None, bare), (bare, full), (full, replace(bare, version=3))):
        memberships.change_group(old, new)
        assert stage.item("groups", group_item(new)) == group_item(new)


def test_member_is_written_whole(stage: Stage) -> None:
    bare = Member(
        name=MemberName("m"),
        member_id="m",
        subscription=Subscription(),
        sequence=1,
        session=1,
        deadline_ms=1_000,
        joined_at_ms=1,
    )
    full = Member(
        name=bare.name,
        member_id="n",
        instance_id="i",
        client_id="host",
        subscription=parse_subscription(["orders"], ["x.*"]),
        sequence=2,
        session=2,
        deadline_ms=9_000,
        epoch=3,
        is_settled=True,
        joined_at_ms=2,
        session_timeout_ms=4_000,
    )
    memberships = stage.stores["memberships"]
    for old, new in ((None, bare), (bare, full), (full, bare)):
        memberships.put_member(GROUP, old, new)
        assert stage.item("groups", member_item(GROUP, new)) == member_item(GROUP, new)


def test_touch_moves_the_end_of_a_member(stage: Stage) -> None:
    member = Member(
        name=MemberName("m"),
        member_id="m",
        subscription=Subscription(),
        sequence=1,
        session=1,
        deadline_ms=1_000,
        joined_at_ms=1,
    )
    stage.stores["memberships"].put_member(GROUP, None, member)
    touch = SessionTouch(
        member_id="m", sequence=2, session=1, deadline_ms=9_000, report=MemberProgress(epoch=4, is_settled=True)
    )
    touched = stage.stores["memberships"].touch_member(GROUP, member.name, touch)
    assert stage.item("groups", member_item(GROUP, member)) == member_item(GROUP, touched)


def test_listed_group_has_an_attribute_of_its_own(stage: Stage) -> None:
    stage.stores["memberships"].register(GROUP)
    assert stage.item("groups", registered_key(GROUP)) == {**registered_key(GROUP), "is_listed": {"BOOL": True}}


def test_share_group_is_written_whole(stage: Stage) -> None:
    bare = ShareGroup(name=GROUP, share_group_id=ShareGroupId("ab" * 10), topics={})
    full = ShareGroup(
        name=GROUP,
        share_group_id=ShareGroupId("cd" * 10),
        version=1,
        created_at_ms=5,
        topics={ORDERS: TopicId("t1")},
        config=new_share_group_config({"ordering": "key"}),
        left_topics=frozenset({TopicId("t0")}),
    )
    for old, new in ((None, bare), (bare, full), (full, replace(bare, version=2))):
        stage.stores["share"].change_group(old, new)
        assert stage.item("groups", share_group_item(new)) == share_group_item(new)


def test_subscription_is_written_whole(stage: Stage) -> None:
    for old, new in ((None, PLAIN), (PLAIN, FULL), (FULL, replace(PLAIN, version=4))):
        stage.stores["push"].change_subscription(old, new)
        assert stage.item("groups", subscription_item(new)) == subscription_item(new)


def test_lane_is_written_whole(stage: Stage) -> None:
    full = LaneState(
        version=2,
        seen_version=3,
        holder="h",
        nonce="n",
        locked_until_ms=4,
        sleeper="s",
        due_ms=5,
        looker="l",
        look_ms=6,
        deaths=7,
    )
    for state in (LaneState(version=1), full, LaneState(version=3)):
        stage.stores["push"].put_lane(LANE, state)
        assert stage.item("groups", lane_item(LANE, state)) == lane_item(LANE, state)


STATES = [
    DeliveryState(offset=Offset(1), version=1),
    DeliveryState(
        offset=Offset(2),
        version=2,
        next_try_ms=3,
        succeeded_ms=4,
        proof_ms=5,
        dead_lettered=6,
        trouble=Trouble(first_failed_ms=1, range_end=Offset(9)),
        window=Window(began_ms=1, seen_offset=Offset(2), quiet_until_ms=3),
    ),
    DeliveryState(offset=Offset(3), version=3),
]


def test_delivery_is_written_whole(stage: Stage) -> None:
    for state in STATES:
        stage.stores["push"].put_delivery(DELIVERY, state)
        assert stage.item("groups", delivery_item(DELIVERY, state)) == delivery_item(DELIVERY, state)


def test_delivery_is_written_whole_with_a_move(stage: Stage) -> None:
    for state in STATES:
        assert stage.stores["transactions"].move(Move(deliveries=[DeliveryCommit(key=DELIVERY, state=state)], refs={}))
        assert stage.item("groups", delivery_item(DELIVERY, state)) == delivery_item(DELIVERY, state)


SCHEMA = "json:s3://bucket/order.json"


def test_topic_is_written_whole(stage: Stage) -> None:
    bare = Topic(name=ORDERS, topic_id=TopicId("t1"), partitions=3, created_at_ms=5)
    full = Topic(
        name=ORDERS,
        topic_id=TopicId("t2"),
        partitions=6,
        created_at_ms=6,
        config=TopicConfig(
            max_batch_bytes=4_096, ordering_on_change="wait", retention="acknowledged", value_schema=SCHEMA
        ),
        was_compacted=True,
        writable=2,
        layout=4,
        heads=9,
        generations=(0, 3),
        opening=7,
        was_restored=True,
        retention_raise=RetentionRaise(noted_ms=3, since_ms=2, retention_ms=1),
        acknowledged_since_ms=8,
    )
    stage.stores["topics"].begin(note_of(bare, 4, is_being_created=True))
    stage.stores["topics"].create(bare)
    for old, new in ((bare, full), (full, bare)):
        stage.stores["topics"].replace(old, new)
        assert stage.item("topics", topic_item(new)) == topic_item(new)


def test_retired_partitions_and_opened_generations_leave_no_attribute_of_before(stage: Stage) -> None:
    topics = stage.stores["topics"]
    full = Topic(
        name=ORDERS, topic_id=TopicId("t1"), partitions=9, created_at_ms=5, writable=4, layout=2, heads=12, opening=3
    )
    topics.begin(note_of(full, 4, is_being_created=True))
    topics.create(full)
    for fewer in (6, 4):
        retired = full.with_partitions(fewer)
        topics.retire(full, retired)
        assert stage.item("topics", topic_item(retired)) == topic_item(retired)
        full = retired
    topics.open_generation(full)
    opened = full.with_next_generation()
    assert stage.item("topics", topic_item(opened)) == topic_item(opened)


def test_creation_that_is_given_up_leaves_its_note_whole(stage: Stage) -> None:
    begun = DeletedTopic(topic_id=TopicId("t1"), name=ORDERS, partitions=3, deleted_at_ms=4, is_being_created=True)
    stage.stores["topics"].begin(begun)
    given_up = DeletedTopic(topic_id=TopicId("t1"), name=TopicName("bills"), partitions=5, deleted_at_ms=6)
    assert stage.stores["topics"].give_up(replace(given_up, is_being_created=True))
    assert stage.item("topics", deleted_topic_item(begun)) == deleted_topic_item(given_up)


def test_pass_of_recover_zones_is_written_whole(stage: Stage) -> None:
    bare = CatchUpPass(zones={}, began_ms=0, saves=1)
    full = CatchUpPass(
        zones={ZoneName("c"): 4},
        began_ms=9,
        saves=2,
        cursor=Cursor("orders", 3, 5),
        progress=Progress(refs=1, segments=2, bytes=3, failures=4, lost=5),
    )
    for old, new in ((None, bare), (bare, full)):
        stage.stores["zone_states"].save_pass(old, new)
        assert stage.item("topics", catch_up_pass_item(new)) == catch_up_pass_item(new)


def test_lease_keeps_no_leader_epoch_of_an_older_commit(stage: Stage) -> None:
    """A commit without one, a reset, and a commit of a transaction remove it."""
    lease = Lease(topic=ORDERS, partition=KEY)
    plain = CommittedOffset(topic=ORDERS, partition=KEY, offset=Offset(5), metadata="", committed_at_ms=9)
    with_epoch = replace(plain, leader_epoch=3)
    groups, transactions = stage.stores["groups"], stage.stores["transactions"]
    transactions.begin_epoch(LEDGER, None, TransactionState(producer_id=7, epoch=0, expires_at_s=9))

    def commit(committed: CommittedOffset) -> None:
        groups.commit(GROUP, committed, None, True, True)

    def reset() -> None:
        groups.reset_lease(GROUP, lease, plain, 1)

    def commit_in_a_transaction() -> None:
        producer = TransactionalProducer(transactional_id=LEDGER, epoch=0)
        offsets = [OffsetCommit(group=GROUP, committed=plain, token=None, may_create=True)]
        assert transactions.commit(Transaction(producer=producer, number=0, expires_at_s=9, refs={}, offsets=offsets))

    for remove in (partial(commit, plain), reset, commit_in_a_transaction):
        commit(with_epoch)
        assert "leader_epoch" in stage.item("groups", lease_item_key(GROUP, KEY))
        remove()
        assert "leader_epoch" not in stage.item("groups", lease_item_key(GROUP, KEY))


def test_release_and_reset_of_a_lease_name_the_topic_as_it_is_called_now(stage: Stage) -> None:
    lease = Lease(topic=ORDERS, partition=KEY, owner=MemberName("m"), epoch=1)
    committed = CommittedOffset(
        topic=TopicName("later"), partition=KEY, offset=Offset(5), metadata="", committed_at_ms=9
    )
    groups = stage.stores["groups"]
    groups.take_lease(GROUP, replace(lease, epoch=0), MemberName("m"), 1)
    groups.release_lease(GROUP, replace(lease, topic=TopicName("renamed")), 2)
    assert stage.item("groups", lease_item_key(GROUP, KEY))["topic"] == {"S": "renamed"}
    groups.reset_lease(GROUP, replace(lease, epoch=2), committed, 3)
    assert stage.item("groups", lease_item_key(GROUP, KEY))["topic"] == {"S": "later"}


def test_commit_takes_a_state_of_an_older_release_that_knew_no_principals(stage: Stage) -> None:
    transactions = stage.stores["transactions"]
    transactions.begin_epoch(LEDGER, None, TransactionState(producer_id=7, epoch=0, expires_at_s=9))
    stage.change("log", state_key(LEDGER), lambda item: {name: item[name] for name in item if name != "principal"})
    producer = TransactionalProducer(transactional_id=LEDGER, epoch=0, principal="role")
    assert transactions.commit(Transaction(producer=producer, number=0, expires_at_s=9, refs={}, offsets=[]))


@pytest.mark.parametrize("how", ["update", "commit", "move"])
def test_share_item_is_written_whole(stage: Stage, how: str) -> None:
    """A lock that goes leaves neither its base nor its records."""
    share, transactions = stage.stores["share"], stage.stores["transactions"]
    transactions.begin_epoch(LEDGER, None, TransactionState(producer_id=7, epoch=0, expires_at_s=9))
    lock, wait = Lock(Offset(4), 50, 1, RecordSet(((0, 2),))), Wait(7, 1, RecordSet(((6, 8),)))
    changes: list[dict[str, Any]] = [
        {"locks": {A: lock, B: lock}, "waits": {Offset(6): wait}, "expected_locks": {A: None, B: None}, "arms_ms": 5},
        {"locks": {A: None, B: replace(lock, base=Offset(3))}, "waits": {Offset(6): None}, "expected_locks": {A: lock}},
        {"locks": {B: None}, "takes_waiter": True, "advance": 2, "open_delta": 1},
    ]
    state = share.create_state(SHARE, Offset(20))
    producer = TransactionalProducer(transactional_id=LEDGER, epoch=0)
    for place, facts in enumerate(changes):
        update = ShareUpdate(generation=0, **facts)
        commit = ShareCommit(key=SHARE, update=update)
        if how == "update":
            assert share.update(SHARE, update).is_applied
        elif how == "move":
            assert transactions.move(Move(shares=[commit], refs={})).is_applied
        else:
            assert transactions.commit(
                Transaction(producer=producer, number=place, expires_at_s=9, refs={}, shares=[commit], offsets=[])
            )
        after = apply(state, update)
        assert after is not None
        assert stage.item("groups", share_item(SHARE, after)) == share_item(SHARE, after)
        state = after


def test_reset_share_item_is_written_whole(stage: Stage) -> None:
    share = stage.stores["share"]
    lock, wait = Lock(Offset(4), 50, 1, RecordSet(((0, 2),))), Wait(7, 1, RecordSet(((6, 8),)))
    state = share.create_state(SHARE, Offset(20))
    filled = ShareUpdate(
        generation=0, locks={A: lock}, expected_locks={A: None}, waits={Offset(6): wait}, advance=1, open_delta=4
    )
    after = share.update(SHARE, filled).after
    assert after is not None
    assert share.reset(SHARE, after, Offset(3))
    empty = replace(state, generation=1, position=Offset(3))
    assert stage.item("groups", share_item(SHARE, empty)) == share_item(SHARE, empty)
