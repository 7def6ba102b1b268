"""What each write rests on, one fact after the other: the write is refused if that fact alone is another one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.tail_move import TailMove
from penstock_core.errors import ErrorCode
from penstock_core.groups.group import GroupState
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken
from penstock_core.ids import GroupName, MemberName, Offset, ShareGroupId, TopicId, TopicName, ZoneName
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.delivery import Delivery, DeliveryOutcome, rolling
from penstock_core.log.index import EMPTY_HEAD
from penstock_core.log.topic import Topic, TopicConfig
from penstock_core.push.lane import LaneState
from penstock_core.quotas.bucket import fresh_bucket
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, CatchUpPass, Mover, ZoneStatus, move
from tests.contract.conftest import Ports
from tests.contract.test_log_index import KEY, append_sequenced, owned, ref, sequenced
from tests.contract.test_membership_store import MEMBER, STATE
from tests.contract.test_quota_store import FRESH, NOW
from tests.contract.test_quota_store import KEY as BUCKET
from tests.contract.test_share_store import GROUP as SHARE_GROUP
from tests.contract.test_timer_store import KEY as TIMED
from tests.contract.test_timer_store import put
from tests.contract.test_topic_store import create
from tests.contract.test_transaction_store import FIRST, NAME, code_of, transaction
from tests.core.push.push_samples import LANE, PLAIN
from tests.support.refs import ref_at
from tests.support.refusals import refused
from tests.support.rolling import roll_if_due

GROUP = GroupName("billing")
ME = MemberName("me")
FREE = Lease(topic=TopicName("orders"), partition=KEY)
COMMIT = CommittedOffset(topic=FREE.topic, partition=KEY, offset=Offset(5), metadata="m", committed_at_ms=9)


def conflict(write: Callable[[], object]) -> None:
    refused(ErrorCode.CONCURRENT_UPDATE, write)


# Groups ---------------------------------------------------------------------------------------------------------------


def test_lease_is_changed_under_the_epoch_that_was_seen_only(ports: Ports) -> None:
    ports.groups.take_lease(GROUP, FREE, ME, 1)
    lease = ports.groups.take_lease(GROUP, replace(FREE, epoch=1), ME, 2)
    for epoch in (0, 1, 3):
        seen = replace(lease, epoch=epoch)
        conflict(lambda seen=seen: ports.groups.take_lease(GROUP, seen, ME, 9))  # type: ignore[misc]
        conflict(lambda seen=seen: ports.groups.reset_lease(GROUP, seen, COMMIT, 9))  # type: ignore[misc]
        conflict(lambda seen=seen: ports.groups.release_lease(GROUP, seen, 9))  # type: ignore[misc]
        assert not ports.groups.delete_lease(GROUP, seen)
    assert [*ports.groups.leases(GROUP)] == [lease]


def test_lease_is_deleted_with_the_commit_that_was_seen_only(ports: Ports) -> None:
    ports.groups.commit(GROUP, COMMIT, None, True, True)
    [lease] = ports.groups.leases(GROUP)
    assert lease.offset is not None
    for changes in ({"offset": Offset(4)}, {"offset": Offset(6)}, {"committed_at_ms": 8}, {"committed_at_ms": 10}):
        assert not ports.groups.delete_lease(GROUP, replace(lease, **changes))
    assert ports.groups.delete_lease(GROUP, lease)


def test_reset_and_release_write_all_that_they_change(ports: Ports) -> None:
    taken = ports.groups.take_lease(GROUP, FREE, ME, 1)
    ports.groups.reset_lease(GROUP, taken, COMMIT, 2)
    reset = replace(FREE, epoch=2, offset=COMMIT.offset, metadata="m", committed_at_ms=9)
    assert [*ports.groups.leases(GROUP)] == [reset]
    ports.groups.release_lease(GROUP, reset, 3)
    assert [*ports.groups.leases(GROUP)] == [replace(reset, epoch=3)]


def test_commit_of_a_transaction_counts_under_the_lease_s_epoch_only(ports: Ports) -> None:
    ports.transactions.begin_epoch(NAME, None, FIRST)
    ports.groups.take_lease(GROUP, FREE, ME, 1)
    ports.groups.take_lease(GROUP, replace(FREE, epoch=1), ME, 2)
    whole = transaction(refs={})
    [offset] = whole.offsets

    def offsets(epoch: int) -> Any:
        token = LeaseToken(owner=ME, epoch=epoch)
        return replace(whole, offsets=[replace(offset, group=GROUP, committed=COMMIT, token=token)])

    for epoch in (1, 3):
        assert code_of(ports, offsets(epoch)) is ErrorCode.LEASE_FENCED
    assert ports.transactions.commit(offsets(2))
    [lease] = ports.groups.leases(GROUP)
    assert (lease.offset, lease.metadata, lease.committed_at_ms) == (COMMIT.offset, "m", 9)


def test_leases_are_found_among_other_items_of_the_group(ports: Ports) -> None:
    ports.memberships.change_group(None, STATE)
    ports.memberships.put_member(GROUP, None, MEMBER)
    ports.memberships.put_target(GROUP, 3, "ab", [b"x"])
    ports.memberships.put_target(GROUP, 4, "cd", [b"y"])
    lease = ports.groups.take_lease(GROUP, FREE, ME, 1)
    assert [*ports.groups.leases(GROUP)] == [lease]
    ports.memberships.remove_targets(GROUP, 4)
    assert [*ports.groups.leases(GROUP)] == [lease]
    assert ports.memberships.get_group(GROUP) == STATE
    assert [*ports.memberships.members(GROUP)] == [MEMBER]
    assert [[*ports.memberships.get_target(GROUP, *each)] for each in ((3, "ab"), (4, "cd"))] == [[], [b"y"]]


@pytest.mark.parametrize(
    "changes",
    [{"member_id": "n"}, {"sequence": 4}, {"sequence": 6}, {"deadline_ms": 99}, {"deadline_ms": 101}],
    ids=str,
)
def test_member_is_changed_and_removed_as_it_was_seen_only(ports: Ports, changes: Any) -> None:
    ports.memberships.put_member(GROUP, None, MEMBER)
    seen = replace(MEMBER, **changes)
    conflict(lambda: ports.memberships.put_member(GROUP, seen, MEMBER))
    assert not ports.memberships.remove_member(GROUP, seen)
    assert [*ports.memberships.members(GROUP)] == [MEMBER]


def test_group_is_changed_and_deleted_at_its_version_only(ports: Ports) -> None:
    state = GroupState(name=GROUP, version=2)
    ports.memberships.change_group(None, state)
    for version in (1, 3):
        seen = replace(state, version=version)
        conflict(lambda seen=seen: ports.memberships.change_group(seen, state))  # type: ignore[misc]
        conflict(lambda seen=seen: ports.memberships.delete_group(seen))  # type: ignore[misc]


# Topics and zones -----------------------------------------------------------------------------------------------------

OPENING = Topic(
    name=TopicName("orders"),
    topic_id=TopicId("t1"),
    partitions=6,
    created_at_ms=1,
    writable=2,
    layout=4,
    generations=(0, 3),
    opening=4,
    config=TopicConfig(ordering_on_change="wait"),
)


@pytest.fixture
def opening(ports: Ports) -> Ports:
    create(ports, OPENING)
    return ports


@pytest.mark.parametrize(
    "changes",
    [
        {"topic_id": TopicId("t0")},
        {"partitions": 5},
        {"partitions": 7},
        {"config": TopicConfig(ordering_on_change="wait", max_batch_bytes=4_096)},
        {"config": TopicConfig()},
        {"config": TopicConfig(ordering_on_change="wait", value_schema="json:s3://bucket/order.json")},
        {"layout": 3},
        {"layout": 5},
        {"layout": 0},
    ],
    ids=str,
)
def test_topic_is_replaced_as_it_was_seen_only(opening: Ports, changes: Any) -> None:
    conflict(lambda: opening.topics.replace(replace(OPENING, **changes), replace(OPENING, partitions=9)))
    assert opening.topics.get(OPENING.name) == OPENING


def test_topic_is_replaced_if_its_order_on_a_change_is_the_seen_one(ports: Ports) -> None:
    plain = replace(OPENING, config=TopicConfig())
    create(ports, plain)
    waiting = replace(OPENING, config=TopicConfig(ordering_on_change="wait"))
    conflict(lambda: ports.topics.replace(waiting, waiting))
    ports.topics.replace(plain, waiting)
    conflict(lambda: ports.topics.replace(plain, plain))


@pytest.mark.parametrize(
    "changes",
    [{"topic_id": TopicId("t0")}, {"partitions": 5}, {"partitions": 7}, {"layout": 3}, {"layout": 5}],
    ids=str,
)
def test_partitions_retire_and_generations_open_as_they_were_seen_only(opening: Ports, changes: Any) -> None:
    seen = replace(OPENING, **changes)
    conflict(lambda: opening.topics.retire(seen, seen.with_partitions(4)))
    conflict(lambda: opening.topics.open_generation(seen))
    assert opening.topics.get(OPENING.name) == OPENING


def test_generation_opens_in_the_size_that_was_seen_only(opening: Ports) -> None:
    for size in (3, 5):
        seen = replace(OPENING, opening=size)
        conflict(lambda seen=seen: opening.topics.open_generation(seen))  # type: ignore[misc]
    assert opening.topics.get(OPENING.name) == OPENING


def test_zones_and_passes_are_saved_over_the_version_that_was_seen_only(ports: Ports) -> None:
    zones = [ZoneName(each) for each in "abc"]
    states = [EVERY_ZONE_IN_SYNC]
    for zone in ("a", "a"):
        status = ZoneStatus.TAKEN_OUT if len(states) == 1 else ZoneStatus.CATCHING_UP
        states.append(move(states[-1], zones, ZoneName(zone), status, Mover.OPERATOR, now_ms=5, reason=""))
        ports.zone_states.change(states[-2], states[-1])
    conflict(lambda: ports.zone_states.change(states[1], states[2]))
    passes = [CatchUpPass(zones={}, began_ms=0, saves=saves) for saves in (1, 2, 3)]
    for old, new in zip([None, *passes], passes, strict=False):
        ports.zone_states.save_pass(old, new)
    conflict(lambda: ports.zone_states.save_pass(passes[1], passes[2]))


# Share groups, push, quotas and timers --------------------------------------------------------------------------------


def test_share_group_is_changed_and_deleted_under_its_id_and_version_only(ports: Ports) -> None:
    ports.share.change_group(None, SHARE_GROUP)
    other = replace(SHARE_GROUP, share_group_id=ShareGroupId("cd" * 10))
    conflict(lambda: ports.share.change_group(other, replace(SHARE_GROUP, version=1)))
    ports.share.change_group(SHARE_GROUP, replace(SHARE_GROUP, version=1))
    conflict(lambda: ports.share.delete_group(SHARE_GROUP))


def test_subscription_is_deleted_before_it_changes_only(ports: Ports) -> None:
    ports.push.change_subscription(None, PLAIN)
    ports.push.change_subscription(PLAIN, replace(PLAIN, version=1))
    conflict(lambda: ports.push.delete_subscription(PLAIN, 9))


def test_lane_of_a_later_version_takes_no_write(ports: Ports) -> None:
    states = [LaneState(version=version, nonce=f"{version}") for version in (1, 2, 3)]
    for state in states:
        ports.push.put_lane(LANE, state)
    assert ports.push.put_lane(LANE, replace(states[1], nonce="late")) == states[2]


@pytest.mark.parametrize(
    "changes",
    [{"rate": 999}, {"rate": 1_001}, {"since_ms": NOW - 1}, {"since_ms": NOW + 1}],
    ids=str,
)
def test_bucket_is_charged_and_replaced_as_it_was_seen_only(ports: Ports, changes: Any) -> None:
    ports.quotas.begin(BUCKET, None, FRESH)
    seen = replace(FRESH, **changes)
    assert not ports.quotas.charge(BUCKET, seen, 1, NOW).is_made
    assert not ports.quotas.begin(BUCKET, seen, fresh_bucket(5, 0, NOW)).is_made
    assert ports.quotas.charge(BUCKET, FRESH, 0, NOW).bucket == FRESH


def test_bucket_is_replaced_with_the_charge_that_was_seen_only(ports: Ports) -> None:
    ports.quotas.begin(BUCKET, None, FRESH)
    for charged in (9, 11):
        seen = replace(FRESH, charged=charged)
        assert not ports.quotas.begin(BUCKET, seen, fresh_bucket(5, 0, NOW)).is_made


def test_bucket_without_credit_takes_no_charge(ports: Ports) -> None:
    ports.quotas.begin(BUCKET, None, FRESH)
    assert ports.quotas.charge(BUCKET, FRESH, FRESH.ceiling(NOW) - FRESH.charged - 1, NOW).is_made
    assert ports.quotas.charge(BUCKET, FRESH, 1, NOW).is_made
    assert not ports.quotas.charge(BUCKET, FRESH, 1, NOW).is_made


def test_rolling_delivery_is_refused_if_an_empty_tail_has_moved(ports: Ports) -> None:
    ports.log.create_head(TIMED)
    timers = put(ports, *range(1_000, 1_000 + TAIL_ROLL_REFS))
    delivery = rolling(Delivery(key=TIMED, timers=timers, now_ms=NOW), EMPTY_HEAD)
    assert delivery.roll is not None
    for number in range(TAIL_ROLL_REFS):
        roll_if_due(ports.log, TIMED, ports.log.append(TIMED, ref_at(number), 0).head)
    head = ports.log.heads([TIMED])[TIMED]
    assert head.tail == ()
    assert ports.timers.promote(delivery) is DeliveryOutcome.MOVED
    assert ports.log.heads([TIMED]) == {TIMED: head}


# The log --------------------------------------------------------------------------------------------------------------


def test_commit_is_refused_when_a_head_is_closed(ports: Ports) -> None:
    ports.log.create_head(KEY)
    ports.log.move_to_layout(KEY, 1, 5_000)
    ports.transactions.begin_epoch(NAME, None, FIRST)
    assert code_of(ports, transaction(refs={KEY: [ref(1)]}, offsets=[])) is ErrorCode.PARTITION_CLOSED


def test_epoch_begins_behind_the_producer_that_was_seen_only(ports: Ports) -> None:
    ports.transactions.begin_epoch(NAME, None, FIRST)
    for producer_id in (6, 8):
        seen = replace(FIRST, producer_id=producer_id)
        conflict(lambda seen=seen: ports.transactions.begin_epoch(NAME, seen, replace(FIRST, producer_id=7, epoch=1)))  # type: ignore[misc]


def test_append_in_sequence_begins_an_epoch_of_a_known_and_of_an_unknown_producer(ports: Ports) -> None:
    ports.log.create_head(KEY)
    for epoch in (3, 4):
        assert append_sequenced(ports, owned(sequenced(epoch, 0, epoch=epoch), b"mine...."))[0]
    assert append_sequenced(ports, sequenced(9, 0, epoch=3, producer_id=8))[0]
    assert append_sequenced(ports, sequenced(9, 0, epoch=4, producer_id=8))[0]


def test_raised_log_start_is_stored(ports: Ports) -> None:
    ports.log.create_head(KEY)
    head = ports.log.append(KEY, ref(1), 0).head
    for offset in (1, head.next_offset):
        ports.log.raise_log_start(KEY, Offset(offset))
        assert ports.log.heads([KEY])[KEY].log_start_offset == offset


def _marked_between(ports: Ports, monkeypatch: pytest.MonkeyPatch, read: str, marks: Any) -> None:
    """Sets a bit right after the first read of that name."""
    original = getattr(ports.log, read)

    def reads(*arguments: Any) -> Any:
        found = original(*arguments)
        monkeypatch.setattr(ports.log, read, original)
        ports.log.mark_stored(KEY, marks)
        return found

    monkeypatch.setattr(ports.log, read, reads)


@pytest.mark.parametrize(("read", "is_rolled"), [("heads", False), ("heads", True), ("pages", True)])
def test_marks_of_two_writers_are_both_kept(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, read: str, is_rolled: bool
) -> None:
    ports.log.create_head(KEY)
    for number in range(TAIL_ROLL_REFS if is_rolled else 3):
        head = ports.log.append(KEY, replace(ref(number), zones=0b001), 0b110).head
    located = head.located_tail()
    roll_if_due(ports.log, KEY, head)
    _marked_between(ports, monkeypatch, read, {located[2]: 0b010})
    assert ports.log.mark_stored(KEY, dict.fromkeys(located[:3], 4)) == 3
    pages = [each.ref for page in ports.log.pages(KEY, Offset(0), 9) for each in page.located()]
    found = [*pages, *ports.log.heads([KEY])[KEY].tail]
    assert [each.zones for each in found[:3]] == [0b101, 0b101, 0b111]


def test_mark_of_the_last_record_of_a_page_finds_its_page(ports: Ports) -> None:
    ports.log.create_head(KEY)
    for number in range(2 * TAIL_ROLL_REFS):
        head = ports.log.append(KEY, replace(ref(number, span=1), zones=0b011), 0b100).head
        roll_if_due(ports.log, KEY, head)
    first = ports.log.pages(KEY, Offset(0), 1)[0]
    last = [*first.located()][-1]
    assert ports.log.mark_stored(KEY, {last: 0b100}) == 1
    assert ports.log.pages(KEY, Offset(0), 1)[0].refs[-1].zones == 0b111


def test_mark_finds_nothing_where_the_page_is_gone_and_other_items_are_left(ports: Ports) -> None:
    ports.log.create_head(KEY)
    for number in range(TAIL_ROLL_REFS):
        head = ports.log.append(KEY, replace(ref(number), zones=0b011), 0b100).head
    located = head.located_tail()
    roll_if_due(ports.log, KEY, head)
    [page] = ports.log.pages(KEY, Offset(0), 1)
    ports.log.delete_page(KEY, page.end_offset)
    last = ports.log.append(KEY, ref(99), 0).head.tail[0]
    move = TailMove(tail_base=page.end_offset, end_offset=head.next_offset, old={0: last}, new={0: last}, moved_ms=5)
    assert ports.compaction.move_tail(KEY, move), "it notes a retired segment"
    assert ports.log.mark_stored(KEY, {located[0]: 0b100}) == 0
