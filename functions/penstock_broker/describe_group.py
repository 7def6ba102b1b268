"""List groups, and describe one: its members, who owns which partition, and how far it has read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import GroupState, Member
from penstock_core.group_target import EMPTY_TARGET, Target
from penstock_core.ids import GroupName, MemberName, Offset, TopicName, parse_group_name
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """`assigned_to` shall own the partition, `owner` has its lease; they differ while it moves. `lag` counts the
    offsets that the group has still to read, None if it has never committed."""

    topic: TopicName
    partition: PartitionKey
    assigned_to: Member | None
    owner: Member | None
    lease: Lease
    log_start_offset: Offset
    high_watermark: Offset

    @property
    def lag(self) -> int | None:
        if self.lease.offset is None:
            return None
        return max(0, self.high_watermark - max(self.lease.offset, self.log_start_offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """`state` is None for a group that only simple consumers commit for. Partitions are sorted by topic and number."""

    group: GroupName
    state: GroupState | None
    members: Sequence[Member]
    partitions: Sequence[GroupPartition]


def list_groups(
    broker: Broker, limit: int, after: str
) -> tuple[Sequence[tuple[GroupName, GroupState | None]], str | None]:
    """Up to `limit` groups by name behind `after`, and where the next page starts, or None. One query, and one read for
    each 100 groups."""
    names = broker.memberships.registered(after, limit + 1)
    page = names[:limit]
    states = broker.memberships.find_groups(page)
    return [(name, states.get(name)) for name in page], page[-1] if len(names) > limit else None


def describe_group(broker: Broker, group_name: str) -> GroupDescription:
    """One read, a query each of the members, the leases and the target, and a read of the heads for each 100
    partitions. Partitions of deleted topics are left out. UNKNOWN_GROUP if nobody has joined the group or committed
    for it."""
    group = parse_group_name(group_name)
    state = broker.memberships.get_group(group)
    leases = {lease.partition: lease for lease in broker.groups.leases(group)}
    if state is None and not leases:
        raise unknown_group(group)
    target = (broker.group_directory.target_of(state) if state else None) or EMPTY_TARGET
    members = live_members(broker, group)
    by_name = {member.name: member for member in members}
    for topic in target.topics:
        for key in topic.partition_keys():
            leases.setdefault(key, Lease(topic=topic.name, partition=key))
    heads = broker.log.heads(sorted(leases))
    return GroupDescription(
        group=group,
        state=state,
        members=members,
        partitions=_partitions(leases, heads, target, by_name),
    )


def live_members(broker: Broker, group: GroupName) -> Sequence[Member]:
    """Those whose session goes on. One query."""
    now_ms = broker.clock.now_ms()
    return [member for member in broker.memberships.members(group) if member.deadline_ms >= now_ms]


def unknown_group(group: GroupName) -> PenstockError:
    """The error for a group that nobody has joined or committed for."""
    return PenstockError(
        ErrorCode.UNKNOWN_GROUP, f"group {group} does not exist: nobody has joined it, or committed for it"
    )


def _partitions(
    leases: Mapping[PartitionKey, Lease],
    heads: Mapping[PartitionKey, Head],
    target: Target,
    members: Mapping[MemberName, Member],
) -> Sequence[GroupPartition]:
    found = [
        GroupPartition(
            topic=lease.topic,
            partition=key,
            assigned_to=members.get(target.owner_of(key) or MemberName("")),
            owner=members.get(lease.owner or MemberName("")),
            lease=lease,
            log_start_offset=heads[key].log_start_offset,
            high_watermark=heads[key].high_watermark,
        )
        for key, lease in leases.items()
        if key in heads
    ]
    return sorted(found, key=lambda each: (each.topic, each.partition))
