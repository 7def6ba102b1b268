"""After a lost answer, only writes that leave the same state when applied twice are sent again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock_core.acls.rule_set import RuleBook
from penstock_core.audit.audit_entry import AuditEntry, AuditId, AuditResult, Caller
from penstock_core.compaction.merging import CompactionState, Swap
from penstock_core.compaction.tail_move import TailMove
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupConfig, GroupState, Member, SessionTouch, Subscription
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken
from penstock_core.ids import (
    NO_NONCE,
    GroupName,
    MemberName,
    Offset,
    Partition,
    PartitionKey,
    ShareGroupId,
    TopicId,
    TopicName,
    TransactionalId,
)
from penstock_core.log.index import HeadJump, Jump, Page
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.topic import Topic, note_of
from penstock_core.mirror.group_offsets import NO_OFFSETS
from penstock_core.mirror.push import HeadMove, HeadReopening, MirrorAppend
from penstock_core.push.delivery import DeliveryState
from penstock_core.push.lane import LaneState
from penstock_core.push.subscription import OrphanedStates
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.transaction import (
    DeliveryCommit,
    Move,
    ShareCommit,
    Transaction,
    TransactionalProducer,
    TransactionState,
)
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, CatchUpPass
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.compaction import (
    DynamoDbAuditStore,
    DynamoDbCompactionStore,
    DynamoDbJobCursors,
)
from penstock_service.adapters.dynamodb.driver_errors import NoAnswerError
from penstock_service.adapters.dynamodb.groups import DynamoDbGroupStore, DynamoDbMembershipStore
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.adapters.dynamodb.push import DynamoDbPushStore
from penstock_service.adapters.dynamodb.share import DynamoDbShareStore
from penstock_service.adapters.dynamodb.topics import DynamoDbAclStore, DynamoDbTopicStore, DynamoDbZoneStateStore
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from tests.core.push.push_samples import DELIVERY, FULL, ID, LANE, PLAIN
from tests.support.refs import ref_at
from tests.support.service import SteppedClock

ATTEMPTS = 5
TRANSACT_ATTEMPTS = 10

KEY = PartitionKey(TopicId("t1"), Partition(0))
TOPIC = Topic(name=TopicName("orders"), topic_id=TopicId("t1"), partitions=3, created_at_ms=5)
DRAINED = TOPIC.with_writable(2)
RAISED = replace(TOPIC, retention_raise=RetentionRaise(noted_ms=5, since_ms=5, retention_ms=60_000))
OPENING = TOPIC.with_opening(2)
NOTE = note_of(TOPIC, 4, is_being_created=True)
SEQUENCE = ProducerSequence(producer_id=7, epoch=0, first_sequence=0, last_sequence=0)
REF = ref_at(1)
JUMP = HeadJump(
    seen_next_offset=Offset(0), jumps=(Jump(start=Offset(0), end=Offset(5)),), refs=(REF,), restore="restore-1"
)
MIRRORED = MirrorAppend(mirror="backup", log_id="1" * 32, base_offset=Offset(0), refs=(REF,), producers={})
PAGE = Page(base_offset=Offset(0), refs=(REF,), max_timestamp_ms=1)
GROUP, ME = GroupName("g"), MemberName("me")
GROUP_STATE = GroupState(name=GROUP, config=GroupConfig(), version=1)
LEASE = Lease(topic=TOPIC.name, partition=KEY, owner=ME, epoch=1)
COMMIT = CommittedOffset(topic=TOPIC.name, partition=KEY, offset=Offset(1), metadata="", committed_at_ms=9)
MEMBER = Member(
    name=ME,
    member_id="me",
    instance_id=None,
    client_id="",
    subscription=Subscription(topics=("orders",), patterns=()),
    sequence=1,
    session=1,
    deadline_ms=9,
    epoch=1,
    is_settled=True,
    joined_at_ms=1,
)
PRODUCER_STATE = ProducerState(epoch=0, last_sequence=1, written_ms=5)
LEASE_HELD = CompactionState(epoch=1, deadline_ms=9)
SWAP = Swap(old=(PAGE,), new=(replace(PAGE, max_timestamp_ms=2),), epoch=1, deadline_ms=9, swapped_ms=5)
TAIL_MOVE = TailMove(tail_base=Offset(0), end_offset=Offset(1), old={0: REF}, new={0: REF}, moved_ms=5)
PRODUCER_ID = TransactionalId("ledger")
PRODUCER = TransactionalProducer(transactional_id=PRODUCER_ID, epoch=0)
STATE = TransactionState(producer_id=7, epoch=0, number=0, expires_at_s=9)
TRANSACTION = Transaction(producer=PRODUCER, number=1, expires_at_s=9, refs={KEY: (REF,)})
PASS = CatchUpPass(zones={}, began_ms=1)
SHARE = ShareKey(ShareGroupId("ab" * 10), TopicId("t0"), Partition(0))
SHARE_STATE = ShareState(position=Offset(0))
SHARE_UPDATE = ShareUpdate(generation=0, expected_waits={Offset(0): None})
SHARE_GROUP = ShareGroup(name=GROUP, share_group_id=SHARE.share_group_id, topics={})
DELIVERED = Move(deliveries=[DeliveryCommit(key=DELIVERY, state=DeliveryState(offset=Offset(0)))], refs={KEY: (REF,)})
BEGUN = AuditEntry(
    audit_id=AuditId("1"),
    time_ms=5,
    caller=Caller(principal="ops", address="", request_id=""),
    action="alter_topic",
    kind="topic",
    name="orders",
)
ORPHANS = OrphanedStates(subscription_id=ID, name=PLAIN.name, since_ms=9)
MOVE = Move(shares=[ShareCommit(key=SHARE, update=SHARE_UPDATE)], refs={KEY: (REF,)})


@dataclass(frozen=True)
class _Stores:
    topics: DynamoDbTopicStore
    log: DynamoDbLogIndex
    groups: DynamoDbGroupStore
    members: DynamoDbMembershipStore
    transactions: DynamoDbTransactionStore
    compaction: DynamoDbCompactionStore
    zones: DynamoDbZoneStateStore
    cursors: DynamoDbJobCursors
    share: DynamoDbShareStore
    push: DynamoDbPushStore
    acls: DynamoDbAclStore
    audit: DynamoDbAuditStore


Write = Callable[[_Stores], object]

# Applied twice they leave the same state, or a condition refuses the second one.
REPEATED: Mapping[str, Write] = {
    "topics.create": lambda stores: stores.topics.create(TOPIC),
    "topics.give_up": lambda stores: stores.topics.give_up(NOTE),
    "topics.forget_deleted": lambda stores: stores.topics.forget_deleted(TOPIC.topic_id),
    "log.create_head": lambda stores: stores.log.create_head(KEY),
    "log.delete_head": lambda stores: stores.log.delete_head(KEY),
    "topics.note_heads_removed": lambda stores: stores.topics.note_heads_removed(TOPIC.topic_id, 5),
    "log.arm": lambda stores: stores.log.arm(KEY, Offset(0), 1_000),
    "log.arm_push": lambda stores: stores.log.arm_push(KEY, Offset(0)),
    "log.append_in_sequence": lambda stores: stores.log.append_in_sequence(KEY, REF, 0, SEQUENCE, Offset(0)),
    "log.put_page": lambda stores: stores.log.put_page(KEY, PAGE),
    "log.replace_page": lambda stores: stores.log.replace_page(KEY, PAGE, PAGE),
    "log.shorten_tail": lambda stores: stores.log.shorten_tail(KEY, PAGE),
    "log.put_evicted": lambda stores: stores.log.put_evicted(KEY, 7, PRODUCER_STATE, 5),
    "log.remove_producers": lambda stores: stores.log.remove_producers(KEY, {7: PRODUCER_STATE}),
    "log.raise_log_start": lambda stores: stores.log.raise_log_start(KEY, Offset(1)),
    "log.raise_passed": lambda stores: stores.log.raise_passed(KEY, Offset(1), 0),
    "log.count_reader": lambda stores: stores.log.count_reader(KEY),
    "log.note_log_start": lambda stores: stores.log.note_log_start(KEY, Offset(1), 5),
    "log.delete_page": lambda stores: stores.log.delete_page(KEY, Offset(1)),
    "groups.delete_lease": lambda stores: stores.groups.delete_lease(GROUP, LEASE),
    "members.delete_group": lambda stores: stores.members.delete_group(GROUP_STATE),
    "members.touch_member": lambda stores: stores.members.touch_member(
        GROUP, ME, SessionTouch(member_id="me", sequence=2, session=1, deadline_ms=10)
    ),
    "members.remove_member": lambda stores: stores.members.remove_member(GROUP, MEMBER),
    "members.put_target": lambda stores: stores.members.put_target(GROUP, 1, "t", [b"x"]),
    "transactions.put_stage": lambda stores: stores.transactions.put_stage(PRODUCER, 1, NO_NONCE, 0, (), 5),
    "transactions.release": lambda stores: stores.transactions.release(PRODUCER_ID),
    "transactions.renew": lambda stores: stores.transactions.renew(PRODUCER, 9),
    "log.jump": lambda stores: stores.log.jump(KEY, JUMP, 0),
    "log.append_mirrored": lambda stores: stores.log.append_mirrored(KEY, MIRRORED, 0),
    "log.put_offsets": lambda stores: stores.log.put_offsets(KEY.topic_id, 1, NO_OFFSETS),
    "log.delete_offsets": lambda stores: stores.log.delete_offsets(KEY.topic_id),
    "log.name_log": lambda stores: stores.log.name_log(KEY, "1" * 32),
    "log.promote": lambda stores: stores.log.promote(KEY, "backup", 0, None),
    "log.move": lambda stores: stores.log.move(KEY, HeadMove(number=1, log_id="l1", now_ms=5)),
    "log.return_to": lambda stores: stores.log.return_to(KEY, 1, "backup"),
    "log.reopen": lambda stores: stores.log.reopen(KEY, HeadReopening(number=1, layout=0, closed_ms=None)),
    "log.move_to_layout": lambda stores: stores.log.move_to_layout(KEY, 1, None),
    "topics.retire": lambda stores: stores.topics.retire(DRAINED, DRAINED.with_partitions(2)),
    "topics.end_raise": lambda stores: stores.topics.end_raise(RAISED),
    "topics.open_generation": lambda stores: stores.topics.open_generation(OPENING),
    "share.create_state": lambda stores: stores.share.create_state(SHARE, Offset(0)),
    "share.update": lambda stores: stores.share.update(SHARE, SHARE_UPDATE),
    "share.reset": lambda stores: stores.share.reset(SHARE, SHARE_STATE, Offset(0)),
    "share.forget_group": lambda stores: stores.share.forget_group(SHARE_GROUP),
    "share.delete_state": lambda stores: stores.share.delete_state(SHARE),
    "push.note_orphans": lambda stores: stores.push.note_orphans(ORPHANS),
    "push.forget_orphans": lambda stores: stores.push.forget_orphans(ID),
    "push.put_lane, new": lambda stores: stores.push.put_lane(LANE, LaneState(version=1)),
    "push.put_lane": lambda stores: stores.push.put_lane(LANE, LaneState(version=2)),
    "push.put_delivery, new": lambda stores: stores.push.put_delivery(DELIVERY, DeliveryState(offset=Offset(0))),
    "push.put_delivery": lambda stores: stores.push.put_delivery(DELIVERY, DeliveryState(offset=Offset(0), version=2)),
    "audit.forget": lambda stores: stores.audit.forget(BEGUN.audit_id),
    "audit.put, of an end": lambda stores: stores.audit.put(replace(BEGUN, result=AuditResult.DONE)),
    "cursors.put": lambda stores: stores.cursors.put("sweep", "7"),
    "cursors.clear": lambda stores: stores.cursors.clear("sweep"),
}
# These wait for conflicts too, so DynamoDbClient.transact tries each of them longer.
TRANSACTED: Mapping[str, Write] = {
    "transactions.commit": lambda stores: stores.transactions.commit(TRANSACTION),
    "transactions.move": lambda stores: stores.transactions.move(MOVE),
    "transactions.move, of a delivery": lambda stores: stores.transactions.move(DELIVERED),
    "compaction.swap": lambda stores: stores.compaction.swap(KEY, SWAP),
    "compaction.move_tail": lambda stores: stores.compaction.move_tail(KEY, TAIL_MOVE),
    "share.begin_states": lambda stores: stores.share.begin_states(GROUP, {SHARE: Offset(0)}),
    "share.begin_state": lambda stores: stores.share.begin_state(GROUP, SHARE, Offset(0)),
}
# A second one would be applied too, or be refused by the first, which the caller could not tell from another's. Or the
# first one, landing late, would undo what the caller does next.
SENT_ONCE: Mapping[str, Write] = {
    "audit.put, of a begin": lambda stores: stores.audit.put(BEGUN),
    "topics.begin": lambda stores: stores.topics.begin(NOTE),
    "topics.replace": lambda stores: stores.topics.replace(TOPIC, replace(TOPIC, partitions=4)),
    "topics.delete": lambda stores: stores.topics.delete(TOPIC, 9),
    "log.append": lambda stores: stores.log.append(KEY, REF, 0),
    "groups.commit": lambda stores: stores.groups.commit(GROUP, COMMIT, LeaseToken(owner=ME, epoch=1), False, False),
    "groups.take_lease": lambda stores: stores.groups.take_lease(GROUP, LEASE, ME, 2),
    "groups.release_lease": lambda stores: stores.groups.release_lease(GROUP, LEASE, 2),
    "groups.reset_lease": lambda stores: stores.groups.reset_lease(GROUP, LEASE, COMMIT, 2),
    "members.register": lambda stores: stores.members.register(GROUP),
    "members.unregister": lambda stores: stores.members.unregister(GROUP),
    "members.change_group, new": lambda stores: stores.members.change_group(None, GROUP_STATE),
    "members.change_group": lambda stores: stores.members.change_group(GROUP_STATE, GROUP_STATE),
    "members.put_member, new": lambda stores: stores.members.put_member(GROUP, None, MEMBER),
    "members.put_member": lambda stores: stores.members.put_member(GROUP, MEMBER, MEMBER),
    "share.change_group, new": lambda stores: stores.share.change_group(None, SHARE_GROUP),
    "share.change_group": lambda stores: stores.share.change_group(SHARE_GROUP, SHARE_GROUP),
    "share.delete_group": lambda stores: stores.share.delete_group(SHARE_GROUP),
    "push.change_subscription, new": lambda stores: stores.push.change_subscription(None, PLAIN),
    "push.change_subscription": lambda stores: stores.push.change_subscription(PLAIN, FULL),
    "push.delete_subscription": lambda stores: stores.push.delete_subscription(PLAIN, 9),
    "transactions.begin_epoch": lambda stores: stores.transactions.begin_epoch(PRODUCER_ID, None, STATE),
    "compaction.acquire": lambda stores: stores.compaction.acquire(KEY, 1, 9),
    "compaction.save": lambda stores: stores.compaction.save(KEY, LEASE_HELD),
    "acls.change": lambda stores: stores.acls.change("", RuleBook(revision="ab")),
    "zones.change": lambda stores: stores.zones.change(EVERY_ZONE_IN_SYNC, EVERY_ZONE_IN_SYNC),
    "zones.save_pass": lambda stores: stores.zones.save_pass(None, PASS),
}


class _SilentDriver:
    """Takes every request and answers none: each may have been applied."""

    def __init__(self) -> None:
        self.requests = 0

    def __getattr__(self, _operation: str) -> Any:
        def call(**_arguments: Any) -> Any:
            self.requests += 1
            raise NoAnswerError("silence")

        return call


class _Halves:
    def random_bytes(self, count: int) -> bytes:
        return b"\x80" + bytes(count - 1)


def _requests_of(write: Write) -> int:
    """The number of requests that `write` sends when none is answered. The failure must be `maybe_applied`."""
    driver = _SilentDriver()
    client = DynamoDbClient(driver, SteppedClock(), _Halves())
    stores = _Stores(
        topics=DynamoDbTopicStore(client, "topics"),
        log=DynamoDbLogIndex(client, "log"),
        groups=DynamoDbGroupStore(client, "groups"),
        members=DynamoDbMembershipStore(client, "groups"),
        transactions=DynamoDbTransactionStore(client, "log", "groups"),
        compaction=DynamoDbCompactionStore(client, "log"),
        zones=DynamoDbZoneStateStore(client, "topics"),
        cursors=DynamoDbJobCursors(client, "topics"),
        share=DynamoDbShareStore(client, "groups"),
        push=DynamoDbPushStore(client, "groups"),
        acls=DynamoDbAclStore(client, "topics"),
        audit=DynamoDbAuditStore(client, "topics"),
    )
    with pytest.raises(PenstockError) as caught:
        write(stores)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    return driver.requests


@pytest.mark.parametrize("write", REPEATED.values(), ids=REPEATED)
def test_write_is_sent_five_times_when_every_answer_is_lost_and_it_may_be_applied_twice(write: Write) -> None:
    assert _requests_of(write) == ATTEMPTS


@pytest.mark.parametrize("write", TRANSACTED.values(), ids=TRANSACTED)
def test_transaction_is_sent_again_when_its_answer_is_lost(write: Write) -> None:
    assert ATTEMPTS <= _requests_of(write) <= ATTEMPTS * TRANSACT_ATTEMPTS


@pytest.mark.parametrize("write", SENT_ONCE.values(), ids=SENT_ONCE)
def test_write_is_sent_once_when_its_answer_is_lost_and_a_second_would_do_harm(write: Write) -> None:
    assert _requests_of(write) == 1


def test_every_write_of_every_store_is_listed() -> None:
    reads = {
        *("topics.get", "topics.list", "topics.page", "topics.count", "topics.deleted"),
        *("log.heads", "log.evicted_producer", "log.find_offsets", "log.pages", "log.pages_before"),
        *("groups.lease_page", "groups.leases", "groups.find_leases"),
        *(
            "members.get_group",
            "members.find_groups",
            "members.registered",
            "members.is_registered",
            "members.is_claimed",
            "members.members",
        ),
        *("members.find_members", "members.get_target"),
        *("transactions.get", "transactions.stages"),
        *("compaction.retired", "compaction.find_merged"),
        *("share.get_group", "share.list_groups", "share.hidden_groups", "share.find_states"),
        *("push.get_subscription", "push.list_subscriptions", "push.has_subscriptions", "push.orphaned_states"),
        "push.subscriptions_of",
        *("push.find_lane", "push.find_deliveries", "push.states_of"),
        *("zones.get", "zones.get_pass", "cursors.get"),
        *("acls.get", "acls.owners", "acls.revision", "audit.entries"),
    }
    reads_first = {"log.mark_stored", "members.remove_targets", "push.delete_states"}
    listed = {name.partition(",")[0] for name in (*REPEATED, *TRANSACTED, *SENT_ONCE)}
    methods = {
        f"{store}.{method}"
        for store, kind in _Stores.__annotations__.items()
        for method in vars(kind)
        if not method.startswith("_")
    }
    assert methods == reads | reads_first | listed
