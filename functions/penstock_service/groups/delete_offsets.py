"""Delete a group's committed offsets in one topic, as an operator does. Members that read the topic prevent it."""

from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Member
from penstock_core.groups.topic_patterns import matches
from penstock_core.ids import GroupName, Offset, Partition, PartitionKey, TopicName, parse_group_name
from penstock_core.limits import OFFSET_RESET_ATTEMPTS_MAX
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome, errors_maybe_applied
from penstock_service.groups.claim_group import abandoned_lease
from penstock_service.groups.delete_group import unlist_group
from penstock_service.groups.describe_group import live_members, unknown_group
from penstock_service.instance.instance import Instance


def delete_offsets(
    instance: Instance, group_name: str, topic_name: str, partitions: Sequence[int] | None = None
) -> list[tuple[Partition, Outcome[Offset | None]]]:
    """The offset that each partition had, None where there was none; of all that the group has, or of some partitions.

    A read, queries of the members and of the leases, and a read and a conditional delete for each partition. A group
    that has neither members nor offsets any more is no group. Raises GROUP_NOT_EMPTY if a live member reads the topic,
    UNKNOWN_GROUP, UNKNOWN_TOPIC and INVALID_NAME. A partition's error is UNKNOWN_PARTITION, GROUP_NOT_EMPTY if a member
    holds it, or CONCURRENT_UPDATE if clients kept committing for it.
    """
    group = parse_group_name(group_name)
    topic = instance.topic_cache.read_through(topic_name)
    state, leases = instance.stores.memberships.get_group(group), instance.stores.groups.leases(group)
    if state is None and not leases:
        raise unknown_group(group)
    _refuse_readers(instance, group, topic.name)
    if partitions is None:
        numbers = sorted(each.partition.partition for each in leases if each.partition.topic_id == topic.topic_id)
    else:
        numbers = [*dict.fromkeys(map(Partition, partitions))]

    def delete_one(number: Partition) -> Offset | None:
        return _delete(instance, group, topic, number)

    results = instance.executor.map(delete_one, numbers)
    with errors_maybe_applied(has_begun=results.may_have_begun):
        if state is None and not instance.stores.groups.lease_page(group, None, "", 1)[0]:
            unlist_group(instance, group)
    return [*zip(numbers, results, strict=True)]


def _refuse_readers(instance: Instance, group: GroupName, topic: TopicName) -> None:
    readers = [each for each in live_members(instance.stores.memberships, instance.clock, group) if _reads(each, topic)]
    if readers:
        raise PenstockError(
            ErrorCode.GROUP_NOT_EMPTY,
            f"{len(readers)} members of group {group} read topic {topic!r}: stop them before its offsets are deleted",
        )


def _reads(member: Member, topic: TopicName) -> bool:
    subscribed = member.subscription
    return topic in subscribed.topics or any(matches(each, topic) for each in subscribed.patterns)


def _delete(instance: Instance, group: GroupName, topic: Topic, number: Partition) -> Offset | None:
    """Delete one lease, unless a member holds it: one that has joined since, or that gives the topic up just now."""
    if number not in topic.all_heads():
        raise PenstockError(
            ErrorCode.UNKNOWN_PARTITION,
            f"partition {number} of topic {topic.name!r} does not exist: it has 0 to {topic.partitions - 1}",
        )
    key = PartitionKey(topic.topic_id, number)
    for _ in range(OFFSET_RESET_ATTEMPTS_MAX):
        seen = instance.stores.groups.find_leases(group, [key]).get(key)
        if seen is not None and seen.owner is not None:
            seen = abandoned_lease(instance, group, key)
            if seen is None:
                raise PenstockError(
                    ErrorCode.GROUP_NOT_EMPTY,
                    f"a member of group {group} holds partition {number} of topic {topic.name!r}: stop it before its "
                    "offset is deleted",
                )
        if seen is None or instance.stores.groups.delete_lease(group, seen):
            return None if seen is None else seen.offset
        _refuse_readers(instance, group, topic.name)
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"clients of group {group} commit for partition {number} of topic {topic.name!r}: stop them, then try again",
    )
