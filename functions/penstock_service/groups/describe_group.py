"""List groups, and describe one: its members, the owner of each partition, and the offsets that it has committed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupState, Member
from penstock_core.groups.group_target import EMPTY_TARGET, TargetAssignment
from penstock_core.groups.lease import Lease
from penstock_core.ids import GroupName, MemberName, Offset, Partition, PartitionKey, TopicName, parse_group_name
from penstock_core.limits import GROUP_NAMES_AT_ONCE, SUBSCRIPTION_LOOK_UPS_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.pages import show_all, shown_page
from penstock_service.groups.rebalance import readable_ends
from penstock_service.index.reader import record_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.ports.groups import MembershipStore
from penstock_service.ports.runtime import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """One partition of a group. `assigned_to` is its owner in the target, `owner` has its lease.

    The two differ while the partition moves from one member to another. `oldest_age_ms` is the time since the append of
    the first record behind the offset, None if there is no offset or no such record.

    `waits_for` is the partition that the group must read to its end before it reads this one
    (docs/protocol/partitions).
    """

    topic: TopicName
    partition: PartitionKey
    assigned_to: Member | None
    owner: Member | None
    lease: Lease
    head: Head
    oldest_age_ms: int | None
    waits_for: Partition | None = None

    @property
    def log_start_offset(self) -> Offset:
        """The lowest offset that readers may ask for."""
        return self.head.log_start_offset

    @property
    def high_watermark(self) -> Offset:
        """The offset behind the last record."""
        return self.head.high_watermark

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has still to read, None if it has never committed.

        The group will read all of a partition that waits.
        """
        if self.lease.offset is None and self.waits_for is None:
            return None
        return self.head.count_from(self.lease.offset or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its live members, or a page of it: members by name, then partitions by `str(partition)`.

    `state` is None for a group that only simple consumers commit for. `next_after` is the `after` of the next page, or
    None after the last.
    """

    group: GroupName
    state: GroupState | None
    member_count: int
    members: Sequence[Member]
    partitions: Sequence[GroupPartition]
    next_after: str | None


def list_groups(
    memberships: MembershipStore, limit: int, after: str, is_shown: Callable[[str], bool] = show_all
) -> tuple[Sequence[tuple[GroupName, GroupState | None]], str | None]:
    """Up to `limit` groups whose names sort after `after`, by name, and the `after` of the next page, or None.

    Leaves out those that are not shown. One query for each `GROUP_NAMES_AT_ONCE` names that it passes, and one read
    for each 100 groups.
    """

    def read(place: str) -> tuple[Sequence[GroupName], str | None]:
        names = memberships.registered(place, GROUP_NAMES_AT_ONCE)
        return names, names[-1] if len(names) == GROUP_NAMES_AT_ONCE else None

    page, next_after = shown_page(read, after, limit, is_shown, str)
    states = memberships.find_groups(page)
    return [(name, states.get(name)) for name in page], next_after


def describe_group(instance: Instance, group_name: str, after: str = "", limit: int | None = None) -> GroupDescription:
    """The group, its live members, and each partition of its target, with a commit, or of a generation that waits.

    Leaves out deleted topics.

    Without a `limit`, all of it, with the partitions sorted by topic and number. With one, a page of so many members
    and partitions together, from behind `after`: a member's name or `str(partition)`, or empty.

    One read, a query each of the members, the leases and the target, and a read of the heads for each 100 partitions.
    One query more for each partition whose oldest record is not in the tail, and what `waiting_partitions` costs.
    Raises INVALID_NAME, and UNKNOWN_GROUP if no consumer has joined the group or committed for it.
    """
    group = parse_group_name(group_name)
    state = instance.stores.memberships.get_group(group)
    target = (instance.group_cache.target_of(state) if state else None) or EMPTY_TARGET
    alive = live_members(instance.stores.memberships, instance.clock, group)
    members = [] if _is_partition(after) else [member for member in alive if member.name > after]
    leases: Mapping[PartitionKey, Lease] = {}
    waiting: Mapping[PartitionKey, tuple[TopicName, Partition]] = {}
    next_after: str | None
    if limit is not None and len(members) >= limit:
        members = members[:limit]
        next_after = members[-1].name
    else:
        left = None if limit is None else limit - len(members)
        waiting = waiting_partitions(instance, group, target)
        names = {key: topic.name for topic in target.topics for key in topic.partition_keys()}
        names |= {key: name for key, (name, _) in waiting.items()}
        leases, next_after = _leases(instance, group, names, after if _is_partition(after) else "", left)
    if state is None and not (leases or after):
        raise unknown_group(group)
    heads = instance.stores.log.heads([*leases])
    present = [(lease, heads[key]) for key, lease in leases.items() if key in heads]
    ages_ms = instance.executor.map(lambda each: lease_age_ms(instance, *each), present).all_ok()
    found = _partitions(present, ages_ms, target, {member.name: member for member in alive})
    partitions = [
        replace(each, waits_for=waiting[each.partition][1]) if each.partition in waiting else each for each in found
    ]
    return GroupDescription(
        group=group,
        state=state,
        member_count=len(alive),
        members=members,
        partitions=partitions if limit else sorted(partitions, key=lambda each: (each.topic, each.partition)),
        next_after=next_after,
    )


def live_members(memberships: MembershipStore, clock: Clock, group: GroupName) -> Sequence[Member]:
    """The members whose sessions go on. One query."""
    now_ms = clock.now_ms()
    return [member for member in memberships.members(group) if member.deadline_ms >= now_ms]


def lease_age_ms(instance: Instance, lease: Lease, head: Head) -> int | None:
    """The time since the append of the first record that the group has not read. None without a commit or a record.

    One query if the record is not in the tail.
    """
    if lease.offset is None:
        return None
    offset = Offset(max(lease.offset, head.log_start_offset))
    return record_age_ms(instance, lease.partition, head, offset)


def unknown_group(group: GroupName) -> PenstockError:
    """The error for a group that no consumer has joined or committed for."""
    return PenstockError(
        ErrorCode.UNKNOWN_GROUP, f"group {group} does not exist: nobody has joined it, or committed for it"
    )


def _is_partition(after: str) -> bool:
    """True for `str(partition)`, False for a member's name: no name has a "#"."""
    return "#" in after


def _leases(
    instance: Instance, group: GroupName, names: Mapping[PartitionKey, TopicName], after: str, limit: int | None
) -> tuple[dict[PartitionKey, Lease], str | None]:
    """The leases behind `after`, with an empty one for a partition of `names` that has none; and the next `after`.

    They are sorted by `str(partition)`.
    """
    if limit is None:
        stored, has_more = instance.stores.groups.leases(group), False
    else:
        stored, has_more = instance.stores.groups.lease_page(group, None, after, limit)
    leases = {lease.partition: lease for lease in stored}
    for key, name in names.items():
        leases.setdefault(key, Lease(topic=name, partition=key))
    # Partitions without a lease behind the last lease of this page belong to later pages, among the leases there.
    last = str(stored[-1].partition) if has_more else None
    found = sorted((str(key), key) for key in leases if str(key) > after and (last is None or str(key) <= last))
    page = found[:limit]
    next_after = page[-1][0] if has_more or len(found) > len(page) else None
    return {key: leases[key] for _, key in page}, next_after


def _partitions(
    present: Sequence[tuple[Lease, Head]],
    ages_ms: Sequence[int | None],
    target: TargetAssignment,
    members: Mapping[MemberName, Member],
) -> Sequence[GroupPartition]:
    return [
        GroupPartition(
            topic=lease.topic,
            partition=lease.partition,
            assigned_to=members.get(target.owner_of(lease.partition) or MemberName("")),
            owner=members.get(lease.owner or MemberName("")),
            lease=lease,
            head=head,
            oldest_age_ms=age_ms,
        )
        for (lease, head), age_ms in zip(present, ages_ms, strict=True)
    ]


def waiting_partitions(
    instance: Instance, group: GroupName, target: TargetAssignment
) -> Mapping[PartitionKey, tuple[TopicName, Partition]]:
    """The partitions of the target's topics that wait, each with its topic and the partition that they wait for.

    That is the first one of an older generation that the group has not read to where it closed. A read of each topic
    that is not remembered, or one of the topics table; for topics with generations also what `readable_ends` costs.
    """
    turned = [topic for topic in _topics(instance, target) if len(topic.generations) > 1]
    reaches = readable_ends(instance, group, turned)
    return {
        PartitionKey(topic.topic_id, Partition(number)): (topic.name, Partition(holder))
        for topic in turned
        if (holder := reaches[topic.topic_id].holder) is not None
        for number in range(reaches[topic.topic_id].end, topic.partitions)
    }


def _topics(instance: Instance, target: TargetAssignment) -> Sequence[Topic]:
    """The topics of the target that still have their names."""
    ids = {topic.topic_id for topic in target.topics}
    if len(ids) > SUBSCRIPTION_LOOK_UPS_MAX:
        found: Sequence[Topic] = instance.stores.topics.list()
    else:
        found = instance.executor.map(instance.topic_cache.get, [topic.name for topic in target.topics]).ok
    return [topic for topic in found if topic.topic_id in ids]
