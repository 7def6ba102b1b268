"""Items of the groups table, and the conditional updates of a lease, which transactions use too.

A member's item stays below 1 KiB, one write unit for each heartbeat, while its subscription has less than about 600
bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_core import keys
from penstock_core.group import (
    GroupConfig,
    GroupState,
    Member,
    Report,
    Subscription,
    alter_group_config,
    group_config_to_json,
)
from penstock_core.ids import GroupName, MemberName, Offset, TopicName
from penstock_core.items import CommittedOffset, Item, lease_item_key, number
from penstock_core.lease import Lease, Tenure

_MEMBER_KEPT_S = 7 * 24 * 3_600  # after its session: DynamoDB removes it then, if nobody has


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalUpdate:
    """What an UpdateItem, or an Update in a transaction, takes beside its table."""

    key: Item
    update: str
    condition: str
    values: Item

    def arguments(self) -> dict[str, Any]:
        return {
            "Key": self.key,
            "UpdateExpression": self.update,
            "ConditionExpression": self.condition,
            "ExpressionAttributeValues": self.values,
        }


def commit_update(
    group: GroupName, committed: CommittedOffset, tenure: Tenure | None, *, may_go_back: bool
) -> ConditionalUpdate:
    """A commit: by the lease's owner, or (`tenure` None) by anybody while nobody owns it.

    Unless it `may_go_back`, the offset only rises: so a commit that comes late, or twice, changes nothing.
    """
    values = {
        ":offset": number(committed.offset),
        ":metadata": {"S": committed.metadata},
        ":topic": {"S": committed.topic},
        ":now": number(committed.committed_at_ms),
    }
    conditions = ["attribute_not_exists(lease_owner)"]
    if tenure is not None:
        conditions = ["lease_owner = :owner AND lease_epoch = :epoch"]
        values |= {":owner": {"S": tenure.owner}, ":epoch": number(tenure.epoch)}
    if not may_go_back:
        conditions.append("(attribute_not_exists(committed_offset) OR committed_offset <= :offset)")
    return ConditionalUpdate(
        key=lease_item_key(group, committed.partition),
        update="SET committed_offset = :offset, metadata = :metadata, topic = :topic, committed_at_ms = :now",
        condition=" AND ".join(conditions),
        values=values,
    )


def take_update(group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> ConditionalUpdate:
    """Makes `owner` the owner under `epoch`, if the lease still has the epoch that was seen."""
    condition, values = _epoch_is(seen)
    return ConditionalUpdate(
        key=lease_item_key(group, seen.partition),
        update="SET lease_owner = :owner, lease_epoch = :next, topic = :topic",
        condition=condition,
        values={
            **values,
            ":owner": {"S": owner},
            ":next": number(epoch),
            ":topic": {"S": seen.topic},
        },
    )


def reset_update(group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> ConditionalUpdate:
    """Sets the offset and leaves the lease without owner, under `epoch`: whoever had it is fenced."""
    condition, values = _epoch_is(seen)
    return ConditionalUpdate(
        key=lease_item_key(group, seen.partition),
        update="SET committed_offset = :offset, metadata = :metadata, topic = :topic, committed_at_ms = :now, "
        "lease_epoch = :next REMOVE lease_owner",
        condition=condition,
        values={
            **values,
            ":next": number(epoch),
            ":offset": number(committed.offset),
            ":metadata": {"S": committed.metadata},
            ":topic": {"S": committed.topic},
            ":now": number(committed.committed_at_ms),
        },
    )


def unchanged_lease(seen: Lease) -> tuple[str, Item]:
    """The condition that nobody has acquired the lease, nor committed, since it was seen; to delete it."""
    condition, values = _epoch_is(seen)
    if seen.offset is None:
        return f"{condition} AND attribute_not_exists(committed_offset)", values
    values |= {":offset": number(seen.offset), ":committed": number(seen.committed_at_ms)}
    return f"{condition} AND committed_offset = :offset AND committed_at_ms = :committed", values


def _epoch_is(seen: Lease) -> tuple[str, Item]:
    if seen.epoch == 0:
        return "attribute_not_exists(lease_epoch)", {}
    return "lease_epoch = :seen", {":seen": number(seen.epoch)}


def parse_lease(item: Mapping[str, Any]) -> Lease:
    return Lease(
        topic=TopicName(item["topic"]["S"]),
        partition=keys.parse_lease_key(item["sk"]["S"]),
        owner=MemberName(item["lease_owner"]["S"]) if "lease_owner" in item else None,
        epoch=_number_of(item, "lease_epoch", 0),
        offset=Offset(int(item["committed_offset"]["N"])) if "committed_offset" in item else None,
        metadata=item["metadata"]["S"] if "metadata" in item else "",
        committed_at_ms=_number_of(item, "committed_at_ms", 0),
    )


def committed_of(lease: Lease) -> CommittedOffset | None:
    """What was committed under the lease, if anything was."""
    if lease.offset is None:
        return None
    return CommittedOffset(
        topic=lease.topic,
        partition=lease.partition,
        offset=lease.offset,
        metadata=lease.metadata,
        committed_at_ms=lease.committed_at_ms,
    )


def group_key(group: GroupName) -> Item:
    return {"pk": {"S": group}, "sk": {"S": keys.GROUP}}


def group_item(group: GroupState) -> Item:
    """Only settings that differ from their default are stored, so that a default can change with the code."""
    defaults = group_config_to_json(GroupConfig())
    settings = {name: value for name, value in group_config_to_json(group.config).items() if value != defaults[name]}
    item = {
        **group_key(group.name),
        "version": number(group.version),
        "epoch": number(group.epoch),
        "target_id": {"S": group.target_id},
        "member_count": number(group.member_count),
        "config": {"M": {name: {"S": v} if isinstance(v, str) else number(v) for name, v in settings.items()}},
        "next_check_ms": number(group.next_check_ms),
        "changed_at_ms": number(group.changed_at_ms),
    }
    if group.empty_since_ms is not None:
        item["empty_since_ms"] = number(group.empty_since_ms)
    return item


def parse_group(item: Mapping[str, Any]) -> GroupState:
    settings = {name: value["S"] if "S" in value else int(value["N"]) for name, value in item["config"]["M"].items()}
    return GroupState(
        name=GroupName(item["pk"]["S"]),
        version=int(item["version"]["N"]),
        epoch=int(item["epoch"]["N"]),
        target_id=item["target_id"]["S"],
        member_count=int(item["member_count"]["N"]),
        config=alter_group_config(GroupConfig(), settings),
        next_check_ms=int(item["next_check_ms"]["N"]),
        changed_at_ms=int(item["changed_at_ms"]["N"]),
        empty_since_ms=int(item["empty_since_ms"]["N"]) if "empty_since_ms" in item else None,
    )


def registered_key(group: GroupName) -> Item:
    """Under one key, the names of all groups: what lists them."""
    return {"pk": {"S": keys.GROUPS}, "sk": {"S": group}}


def member_item_key(group: GroupName, name: MemberName) -> Item:
    return {"pk": {"S": group}, "sk": {"S": keys.member_key(name)}}


def member_item(group: GroupName, member: Member) -> Item:
    item = {
        **member_item_key(group, member.name),
        "member_id": {"S": member.member_id},
        "client_id": {"S": member.client_id},
        "topics": {"L": [{"S": name} for name in member.subscription.topics]},
        "patterns": {"L": [{"S": pattern} for pattern in member.subscription.patterns]},
        "epoch": number(member.epoch),
        "is_settled": {"BOOL": member.is_settled},
        "joined_at_ms": number(member.joined_at_ms),
        "sequence": number(member.sequence),
        "member_session": number(member.session),
        **_ends(member.deadline_ms),
    }
    if member.instance_id is not None:
        item["instance_id"] = {"S": member.instance_id}
    return item


def parse_member(item: Mapping[str, Any]) -> Member:
    return Member(
        name=MemberName(item["sk"]["S"].removeprefix(keys.MEMBER_PREFIX)),
        member_id=item["member_id"]["S"],
        instance_id=item["instance_id"]["S"] if "instance_id" in item else None,
        client_id=item["client_id"]["S"],
        subscription=Subscription(
            topics=tuple(each["S"] for each in item["topics"]["L"]),
            patterns=tuple(each["S"] for each in item["patterns"]["L"]),
        ),
        sequence=int(item["sequence"]["N"]),
        session=int(item["member_session"]["N"]),
        deadline_ms=int(item["deadline_ms"]["N"]),
        epoch=int(item["epoch"]["N"]),
        is_settled=item["is_settled"]["BOOL"],
        joined_at_ms=int(item["joined_at_ms"]["N"]),
    )


def touch_update(
    group: GroupName,
    name: MemberName,
    member_id: str,
    sequence: int,
    session: int,
    deadline_ms: int,
    report: Report | None,
) -> ConditionalUpdate:
    """A heartbeat of the member's present process in its present session, and a later one than all before."""
    update = "SET #sequence = :sequence, deadline_ms = :deadline, expires_at_s = :expires"
    ends = _ends(deadline_ms)
    values: Item = {
        ":member": {"S": member_id},
        ":sequence": number(sequence),
        ":session": number(session),
        ":deadline": ends["deadline_ms"],
        ":expires": ends["expires_at_s"],
    }
    if report is not None:
        update += ", epoch = :epoch, is_settled = :settled"
        values |= {":epoch": number(report.epoch), ":settled": {"BOOL": report.is_settled}}
    return ConditionalUpdate(
        key=member_item_key(group, name),
        update=update,
        condition="member_id = :member AND member_session = :session AND #sequence < :sequence",
        values=values,
    )


SEQUENCE_NAME = {"#sequence": "sequence"}  # one of DynamoDB's reserved words


def unchanged_member(seen: Member) -> tuple[str, Item]:
    """The condition that neither a heartbeat nor a new process has come since the member was seen."""
    return "member_id = :member AND #sequence = :sequence AND deadline_ms = :deadline", {
        ":member": {"S": seen.member_id},
        ":sequence": number(seen.sequence),
        ":deadline": number(seen.deadline_ms),
    }


def target_item(group: GroupName, epoch: int, target_id: str, chunk: int, data: bytes) -> Item:
    return {"pk": {"S": group}, "sk": {"S": keys.target_key(epoch, target_id, chunk)}, "target": {"B": data}}


def _ends(deadline_ms: int) -> Item:
    return {"deadline_ms": number(deadline_ms), "expires_at_s": number(deadline_ms // 1_000 + _MEMBER_KEPT_S)}


def _number_of(item: Mapping[str, Any], name: str, default: int) -> int:
    return int(item[name]["N"]) if name in item else default
