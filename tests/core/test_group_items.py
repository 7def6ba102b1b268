"""Items of the groups table: as stored, read back, and small enough."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core import group_items as items
from penstock_core.group import GroupConfig, GroupState, Member, Report, parse_subscription
from penstock_core.ids import GroupName, MemberName, Offset, Partition, TopicId, TopicName
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey, member_key, target_key, target_prefix
from penstock_core.lease import Lease, Tenure

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
}
COMMITTED = CommittedOffset(
    topic=TopicName("orders"), partition=KEY, offset=Offset(41), metadata="", committed_at_ms=10
)
MEMBER = Member(
    name=MemberName("=eu-1"),
    member_id="p" * 36,
    instance_id="eu-1",
    client_id="host",
    subscription=parse_subscription(["orders", "bills"], ["x.*"]),
    sequence=2**60,
    session=2,
    deadline_ms=1_790_000_000_000,
    epoch=12,
    is_settled=True,
    joined_at_ms=1_780_000_000_000,
)


def test_lease_is_read_from_its_item() -> None:
    assert items.parse_lease(LEASE_ITEM) == LEASE


def test_lease_that_was_only_committed_or_only_acquired_is_read_too() -> None:
    committed = {name: value for name, value in LEASE_ITEM.items() if not name.startswith("lease_")}
    assert items.parse_lease(committed) == replace(LEASE, owner=None, epoch=0)
    acquired = {name: LEASE_ITEM[name] for name in ("pk", "sk", "topic", "lease_owner", "lease_epoch")}
    assert items.parse_lease(acquired) == replace(LEASE, offset=None, metadata="", committed_at_ms=0)
    assert items.committed_of(items.parse_lease(acquired)) is None
    assert items.committed_of(LEASE) == replace(COMMITTED, offset=Offset(40), metadata="x", committed_at_ms=9)


def test_commit_is_conditional_on_owner_epoch_and_offset() -> None:
    update = items.commit_update(GROUP, COMMITTED, Tenure(owner=MemberName("m"), epoch=7), may_go_back=False)
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
    assert items.take_update(GROUP, replace(LEASE, epoch=0), MemberName("n"), 5).condition == (
        "attribute_not_exists(lease_epoch)"
    )
    assert items.take_update(GROUP, LEASE, MemberName("n"), 8).values[":next"] == {"N": "8"}


@pytest.mark.parametrize(
    "group",
    [
        GroupState(name=GROUP),
        GroupState(
            name=GROUP,
            version=9,
            epoch=4,
            target_id="ab",
            member_count=3,
            config=GroupConfig(assignor="range", session_timeout_ms=60_000),
            next_check_ms=7,
            changed_at_ms=8,
            empty_since_ms=5,
        ),
    ],
)
def test_group_is_read_back(group: GroupState) -> None:
    assert items.parse_group(items.group_item(group)) == group


def test_group_stores_no_setting_that_is_the_default() -> None:
    assert items.group_item(GroupState(name=GROUP))["config"] == {"M": {}}


@pytest.mark.parametrize("member", [MEMBER, replace(MEMBER, name=MemberName("m"), instance_id=None)])
def test_member_is_read_back(member: Member) -> None:
    assert items.parse_member(items.member_item(GROUP, member)) == member


def test_member_is_one_write_unit_with_a_subscription_of_600_bytes() -> None:
    member = replace(MEMBER, subscription=parse_subscription(["t" * 100 + str(n) for n in range(6)], []))
    item = items.member_item(GroupName("g" * 60), member)
    assert _bytes_of({"M": item}) < 1_024


def _bytes_of(value: dict[str, Any]) -> int:
    """About as DynamoDB counts: names, texts, half a number's digits, a few bytes for a list and its elements."""
    [(kind, content)] = value.items()
    match kind:
        case "M":
            return sum(len(name) + _bytes_of(each) for name, each in content.items())
        case "L":
            return 3 + sum(1 + _bytes_of(each) for each in content)
        case "N":
            return len(content) // 2 + 2
        case "S":
            return len(content)
    return 1


def test_member_outlives_its_session_by_a_week_at_most() -> None:
    expires_at_s = int(items.member_item(GROUP, MEMBER)["expires_at_s"]["N"])
    assert expires_at_s == 1_790_000_000 + 7 * 86_400
    touched = items.touch_update(GROUP, MEMBER.name, "p", 3, 2, 1_790_000_001_000, Report(epoch=1, is_settled=False))
    assert touched.values[":expires"] == {"N": str(expires_at_s + 1)}


def test_targets_sort_by_epoch_and_chunk_and_apart_from_members() -> None:
    keys = [target_key(epoch, "ab", chunk) for epoch in (2, 10) for chunk in (0, 1, 10)]
    assert keys == sorted(keys)
    assert target_key(2, "zz", 999) < target_prefix(3) <= target_key(3, "00", 0)
    assert member_key(MemberName("x")) == "member#x"
