from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, refusal
from penstock_core.ids import GroupName, MemberName, Offset, Partition, PartitionKey, TopicId, TopicName
from penstock_core.storage.groups.lease_item import (
    commit_update,
    committed_of,
    lease_item_key,
    lease_key,
    parse_lease,
    parse_lease_key,
    reset_update,
    take_update,
    unchanged_lease,
)

GROUP = GroupName("billing")
KEY = PartitionKey(TopicId("0a" * 10), Partition(3))
LEASE = Lease(
    topic=TopicName("orders"),
    partition=KEY,
    owner=MemberName("m"),
    epoch=7,
    offset=Offset(40),
    metadata="x",
    committed_at_ms=9,
    leader_epoch=4,
)
LEASE_ITEM = {
    "pk": {"S": "billing"},
    "sk": {"S": f"lease#{'0a' * 10}#3"},
    "topic": {"S": "orders"},
    "lease_owner": {"S": "m"},
    "lease_epoch": {"N": "7"},
    "committed_offset": {"N": "40"},
    "metadata": {"S": "x"},
    "committed_at_ms": {"N": "9"},
    "leader_epoch": {"N": "4"},
}
COMMITTED = CommittedOffset(
    topic=TopicName("orders"), partition=KEY, offset=Offset(41), metadata="", committed_at_ms=10
)


def test_lease_is_read_from_its_item() -> None:
    assert parse_lease(LEASE_ITEM) == LEASE


def test_lease_that_was_only_committed_or_only_acquired_is_read_too() -> None:
    committed = {name: value for name, value in LEASE_ITEM.items() if not name.startswith("lease_")}
    assert parse_lease(committed) == replace(LEASE, owner=None, epoch=0)
    acquired = {name: LEASE_ITEM[name] for name in ("pk", "sk", "topic", "lease_owner", "lease_epoch")}
    assert parse_lease(acquired) == replace(LEASE, offset=None, metadata="", committed_at_ms=0, leader_epoch=None)
    assert committed_of(parse_lease(acquired)) is None
    assert committed_of(LEASE) == replace(COMMITTED, offset=Offset(40), metadata="x", committed_at_ms=9, leader_epoch=4)


def test_commit_is_conditional_on_owner_epoch_and_offset() -> None:
    update = commit_update(GROUP, COMMITTED, LeaseToken(owner=MemberName("m"), epoch=7), may_go_back=False)
    assert update.key == {"pk": {"S": "billing"}, "sk": {"S": f"lease#{'0a' * 10}#3"}}
    assert update.condition == (
        "lease_owner = :owner AND lease_epoch = :epoch AND "
        "(attribute_not_exists(committed_offset) OR committed_offset <= :offset)"
    )
    assert update.values[":epoch"] == {"N": "7"}
    assert set(update.arguments()) == {
        "Key",
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeValues",
    }


def test_lease_that_nobody_has_ever_owned_is_seen_as_such() -> None:
    assert take_update(GROUP, replace(LEASE, epoch=0), MemberName("n"), 5).condition == (
        "attribute_not_exists(lease_epoch)"
    )
    assert take_update(GROUP, LEASE, MemberName("n"), 8).values[":next"] == {"N": "8"}


@given(st.from_regex(r"[0-9a-f]{20}", fullmatch=True), st.integers(0, limits.TOPIC_PARTITIONS_MAX - 1))
def test_lease_key_survives_a_round_trip(topic_id: str, partition: int) -> None:
    key = PartitionKey(TopicId(topic_id), Partition(partition))
    assert parse_lease_key(lease_key(key)) == key
    assert lease_item_key(GROUP, key) == {"pk": {"S": "billing"}, "sk": {"S": f"lease#{topic_id}#{partition}"}}


def test_commit_without_a_token_is_conditional_on_a_free_lease() -> None:
    update = commit_update(GROUP, COMMITTED, None, may_go_back=True)
    assert update.condition == "attribute_not_exists(lease_owner)"
    assert update.values == {
        ":offset": {"N": "41"},
        ":metadata": {"S": ""},
        ":topic": {"S": "orders"},
        ":now": {"N": "10"},
    }
    assert update.update == (
        "SET committed_offset = :offset, metadata = :metadata, topic = :topic, committed_at_ms = :now "
        "REMOVE leader_epoch"
    )


def test_commit_that_may_not_create_is_conditional_on_a_lease_that_is_there() -> None:
    update = commit_update(GROUP, COMMITTED, None, may_go_back=True, may_create=False)
    assert update.condition == "attribute_not_exists(lease_owner) AND attribute_exists(pk)"


def test_commit_keeps_its_leader_epoch_in_place_of_the_one_before() -> None:
    update = commit_update(GROUP, replace(COMMITTED, leader_epoch=6), None, may_go_back=True)
    assert update.update.endswith("committed_at_ms = :now, leader_epoch = :leader")
    assert update.values[":leader"] == {"N": "6"}


def test_reset_removes_the_owner_under_the_next_epoch() -> None:
    update = reset_update(GROUP, LEASE, COMMITTED, 8)
    assert update.update.endswith("lease_epoch = :next REMOVE lease_owner, leader_epoch")
    assert (update.condition, update.values[":seen"]) == ("lease_epoch = :seen", {"N": "7"})
    assert update.values[":next"] == {"N": "8"}


def test_delete_is_conditional_on_everything_that_was_seen() -> None:
    assert unchanged_lease(LEASE) == (
        "lease_epoch = :seen AND committed_offset = :offset AND committed_at_ms = :committed",
        {":seen": {"N": "7"}, ":offset": {"N": "40"}, ":committed": {"N": "9"}},
    )
    assert unchanged_lease(replace(LEASE, epoch=0, offset=None)) == (
        "attribute_not_exists(lease_epoch) AND attribute_not_exists(committed_offset)",
        {},
    )


@pytest.mark.parametrize("token", [None, LeaseToken(owner=MemberName("m"), epoch=7)])
@pytest.mark.parametrize("may_go_back", [False, True])
def test_condition_names_the_offset_where_the_rule_looks_at_it(token: LeaseToken | None, may_go_back: bool) -> None:
    lease = LEASE if token is not None else replace(LEASE, owner=None)
    is_refused = refusal(lease, KEY, Offset(39), token, may_go_back=may_go_back) is not None
    condition = commit_update(GROUP, replace(COMMITTED, offset=Offset(39)), token, may_go_back=may_go_back).condition
    assert is_refused == ("committed_offset <= :offset" in condition) == (not may_go_back)
