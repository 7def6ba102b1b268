"""The item of a lease: who may use a partition for a group, and the group's committed offset. With its updates.

```
groups table   pk group name   sk "lease#<topic id>#<partition>"
topic             S   the topic's name when the item was last written
lease_owner       S   a member's name; absent while no member owns the lease
lease_epoch       N   rises with each change of the owner; absent until the first
committed_offset  N   the offset that the group reads next; absent until the first commit
metadata          S   what the committer wrote beside it
committed_at_ms   N   when it was committed
leader_epoch      N   what a Kafka client committed with the offset; absent where it named none
```
Each update carries the rules of groups/lease.py as a condition. Commits of a transaction use `commit_update` too.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack, SeenCommit
from penstock_core.ids import GroupName, MemberName, Offset, Partition, PartitionKey, TopicId, TopicName
from penstock_core.storage.item import ConditionalUpdate, Item, number

LEASE_PREFIX = "lease#"


def lease_item_key(group: str, key: PartitionKey) -> Item:
    """The key of the group's lease on the partition."""
    return {"pk": {"S": group}, "sk": {"S": lease_key(key)}}


def lease_key(key: PartitionKey) -> str:
    """Sort key of a group's lease on one partition."""
    return f"{LEASE_PREFIX}{key}"


def parse_lease_key(text: str) -> PartitionKey:
    """The inverse of `lease_key`. Raises ValueError."""
    topic_id, partition = text.removeprefix(LEASE_PREFIX).split("#")
    return PartitionKey(TopicId(topic_id), Partition(int(partition)))


def parse_lease(item: Mapping[str, Any]) -> Lease:
    """The lease; what the item lacks was never written: no owner, epoch 0, no offset."""
    check_item("lease", item)
    return Lease(
        topic=TopicName(item["topic"]["S"]),
        partition=parse_lease_key(item["sk"]["S"]),
        owner=MemberName(item["lease_owner"]["S"]) if "lease_owner" in item else None,
        epoch=_number_of(item, "lease_epoch", 0),
        offset=Offset(int(item["committed_offset"]["N"])) if "committed_offset" in item else None,
        metadata=item["metadata"]["S"] if "metadata" in item else "",
        committed_at_ms=_number_of(item, "committed_at_ms", 0),
        leader_epoch=int(item["leader_epoch"]["N"]) if "leader_epoch" in item else None,
    )


def committed_of(lease: Lease) -> CommittedOffset | None:
    """The committed offset of the lease; None if the group has committed nothing."""
    if lease.offset is None:
        return None
    return CommittedOffset(
        topic=lease.topic,
        partition=lease.partition,
        offset=lease.offset,
        metadata=lease.metadata,
        committed_at_ms=lease.committed_at_ms,
        leader_epoch=lease.leader_epoch,
    )


def commit_update(
    group: GroupName,
    committed: CommittedOffset,
    token: LeaseToken | None,
    *,
    may_go_back: MayGoBack,
    may_create: bool = True,
) -> ConditionalUpdate:
    """A commit by the member that `token` names, or, without a token, by any client while no member owns the lease.

    The offset only rises, so a commit that comes late or twice changes nothing. `may_go_back` tells when it may fall.
    Unless it `may_create`, it needs a lease that is there.
    The condition states the rule of `groups.lease.refusal`, which tells why a commit is refused. The contract test
    `test_commit_is_refused_exactly_where_lease_refusal_says` runs both over all cases and holds them together.
    """
    values = {
        ":offset": number(committed.offset),
        ":metadata": {"S": committed.metadata},
        ":topic": {"S": committed.topic},
        ":now": number(committed.committed_at_ms),
    }
    update = "SET committed_offset = :offset, metadata = :metadata, topic = :topic, committed_at_ms = :now"
    if committed.leader_epoch is None:
        update += " REMOVE leader_epoch"
    else:
        update += ", leader_epoch = :leader"
        values[":leader"] = number(committed.leader_epoch)
    conditions = ["attribute_not_exists(lease_owner)"]
    if token is not None:
        conditions = ["lease_owner = :owner AND lease_epoch = :epoch"]
        values |= {":owner": {"S": token.owner}, ":epoch": number(token.epoch)}
    elif not may_create:
        conditions.append("attribute_exists(pk)")
    if isinstance(may_go_back, SeenCommit):
        is_seen = "committed_offset = :seen AND committed_at_ms = :seen_at"
        conditions.append(f"(attribute_not_exists(committed_offset) OR committed_offset <= :offset OR ({is_seen}))")
        values |= {":seen": number(may_go_back.offset), ":seen_at": number(may_go_back.committed_at_ms)}
    elif not may_go_back:
        conditions.append("(attribute_not_exists(committed_offset) OR committed_offset <= :offset)")
    return ConditionalUpdate(
        key=lease_item_key(group, committed.partition),
        update=update,
        condition=" AND ".join(conditions),
        values=values,
    )


def take_update(group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> ConditionalUpdate:
    """Makes `owner` the owner under `epoch`, on condition that the lease still has the epoch of `seen`."""
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
    """Sets the offset and removes the owner, under `epoch`. So a former owner is fenced: its commits are refused."""
    condition, values = _epoch_is(seen)
    return ConditionalUpdate(
        key=lease_item_key(group, seen.partition),
        update="SET committed_offset = :offset, metadata = :metadata, topic = :topic, committed_at_ms = :now, "
        "lease_epoch = :next REMOVE lease_owner, leader_epoch",
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


def release_update(group: GroupName, seen: Lease, epoch: int) -> ConditionalUpdate:
    """Removes the owner, under `epoch`, and leaves the offset. So a former owner is fenced: its commits are refused."""
    condition, values = _epoch_is(seen)
    return ConditionalUpdate(
        key=lease_item_key(group, seen.partition),
        update="SET lease_epoch = :next, topic = :topic REMOVE lease_owner",
        condition=condition,
        values={**values, ":next": number(epoch), ":topic": {"S": seen.topic}},
    )


def unchanged_lease(seen: Lease) -> tuple[str, Item]:
    """The condition of a delete: since `seen` was read, no member has acquired the lease and none has committed."""
    condition, values = _epoch_is(seen)
    if seen.offset is None:
        return f"{condition} AND attribute_not_exists(committed_offset)", values
    values |= {":offset": number(seen.offset), ":committed": number(seen.committed_at_ms)}
    return f"{condition} AND committed_offset = :offset AND committed_at_ms = :committed", values


def _epoch_is(seen: Lease) -> tuple[str, Item]:
    if seen.epoch == 0:
        return "attribute_not_exists(lease_epoch)", {}
    return "lease_epoch = :seen", {":seen": number(seen.epoch)}


def _number_of(item: Mapping[str, Any], name: str, default: int) -> int:
    return int(item[name]["N"]) if name in item else default
