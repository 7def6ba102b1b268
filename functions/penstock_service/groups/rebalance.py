"""Make a group's target assignment fit its members and topics, by compare-and-set on the group's item.

A heartbeat that changes a member's item (a join, a leave, a new subscription, the end of a session) does that first
and rebalances after. Suppose two heartbeats do so at the same time. The one that reads the group last sees both
changes. The other one may lack a change, but its compare-and-set comes after the first one's, and fails. If a function
dies between the change and the rebalance, the next check compares the target with the members, and makes a new target.

Tell how far a group may read: a generation of partitions waits for the ones before (docs/protocol/partitions).

A group has read a generation once, for each of its partitions, its committed offset or the log start is at the offset
where the partition was closed. Only timers deliver behind that offset, and their records have no order among others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock_core.backoff import look_again_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import (
    GroupConfig,
    GroupState,
    Member,
    alter_group_config,
    state_after_check,
    state_after_rebalance,
)
from penstock_core.groups.group_target import EMPTY_TARGET, TargetAssignment, encode_target, make_target
from penstock_core.groups.topic_patterns import TopicReach, topic_reach
from penstock_core.ids import EPOCH_BYTES, GROUP_EPOCH_BYTES, GroupName, Partition, PartitionKey, TopicId, random_start
from penstock_core.limits import (
    GROUP_CHECK_CLAIM_MS,
    GROUP_CHECK_MS_MAX,
    GROUP_CHECK_MS_MIN,
    GROUP_PATIENCE,
    REBALANCE_ATTEMPTS_MAX,
    SUBSCRIPTION_LOOK_UPS_MAX,
)
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_service.groups.claim_group import keep_listed, list_group
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance
from penstock_service.instance.telemetry import Telemetry
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.groups import MembershipStore
from penstock_service.ports.runtime import Executor
from penstock_service.ports.topics import TopicStore

_TARGET_ID_BYTES = 8
_NONE_KNOWN: Mapping[TopicId, int] = {}


def create_group(
    instance: Instance, window: UpdateWindow, principal: str, group: GroupName, config: Mapping[str, Any]
) -> GroupState:
    """The group's item. Another heartbeat may have created it at the same time: then it is that one's.

    It counts as the principal's (`list_group`). Open the window before you look whether there is a group.

    One conditional put, and what `list_group` and `keep_listed` cost. Raises INVALID_CONFIG, QUOTA_EXCEEDED and
    STORAGE_UNAVAILABLE. The version and the first epoch are random: a request for a deleted group of this name must
    not pass for a request to this one.
    """
    now_ms = instance.clock.now_ms()
    new = GroupState(
        name=group,
        version=random_start(instance.entropy.random_bytes(EPOCH_BYTES)),
        config=alter_group_config(GroupConfig(), config),
        next_check_ms=now_ms,
        changed_at_ms=now_ms,
        created_at_ms=now_ms,
        empty_since_ms=now_ms,
    )
    list_group(instance, window, principal, group)
    window.check()
    try:
        instance.stores.memberships.change_group(None, new)
    except PenstockError as error:
        found = instance.stores.memberships.get_group(group) if error.code is ErrorCode.CONCURRENT_UPDATE else None
        if found is None:
            if error.maybe_applied:
                keep_listed(instance, principal, group)
            raise
        return found
    keep_listed(instance, principal, group)
    return new


def check_group(instance: Instance, state: GroupState) -> GroupState:
    """The group after a check, which ends expired sessions and makes a new target if topics or members have changed.

    Only one of several heartbeats that find a check due does it: the first to claim it. Two conditional puts, a query
    of the members, the reads of their topics, and the target.
    """
    claimed = replace(state, version=state.version + 1, next_check_ms=instance.clock.now_ms() + GROUP_CHECK_CLAIM_MS)
    try:
        instance.stores.memberships.change_group(state, claimed)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
        return state  # another heartbeat has claimed the check, or changed the group
    checked, _ = rebalance(instance, state.name)
    return checked


def rebalance(
    instance: Instance,
    group: GroupName,
    is_enough: Callable[[TargetAssignment], bool] = lambda _: False,
    *,
    is_forced: bool = False,
) -> tuple[GroupState, TargetAssignment | None]:
    """The group and its target, which fits its members and topics, or `is_enough`. `is_forced` makes a new target.

    The target is None if other heartbeats changed the group during all 5 attempts. For each attempt a read, a query of
    the members, the reads of their topics, the puts of the target, one conditional put. For topics with
    generations it costs what `readable_ends` costs, too. Raises UNKNOWN_GROUP.
    """
    missing = None
    for _ in range(REBALANCE_ATTEMPTS_MAX):
        state = find_group(instance.stores.memberships, group)
        previous = instance.group_cache.target_of(state)
        if previous is None and missing != state.target_id:
            missing = state.target_id  # there is a newer target, unless the next read finds the group unchanged
            continue
        if previous is not None and is_enough(previous) and not is_forced:
            return state, previous
        members = _end_sessions(instance, group)
        topics = _subscribed_topics(instance.stores.topics, instance.topic_cache, instance.executor, members)
        known = {} if previous is None or is_forced else previous.ends()
        reaches = readable_ends(instance, group, topics, known)
        now_ms = instance.clock.now_ms()
        if previous is not None and previous.fits(members, topics, reaches) and not is_forced:
            new, target = state_after_check(state, members, now_ms), previous
        else:
            # There may be no previous target: a slow deletion of an earlier group of this name may have removed it.
            target = make_target(state.config.assignor, members, topics, previous or EMPTY_TARGET, reaches)
            new = state_after_rebalance(
                state,
                members,
                now_ms,
                0 if state.epoch else random_start(instance.entropy.random_bytes(GROUP_EPOCH_BYTES)),
                instance.entropy.random_bytes(_TARGET_ID_BYTES).hex(),
            )
            instance.stores.memberships.put_target(group, new.epoch, new.target_id, encode_target(target))
        held_up = [reaches[each.topic_id] for each in topics if each.topic_id in reaches]
        waits_ms = [_patience_ms(new, reach, now_ms) for reach in held_up if reach.holder is not None]
        if members and waits_ms:  # a generation may be open soon
            new = replace(new, next_check_ms=min(new.next_check_ms, now_ms + min(waits_ms)))
        try:
            instance.stores.memberships.change_group(state, new)
        except PenstockError as error:
            if error.code is ErrorCode.CONCURRENT_UPDATE or error.maybe_applied:
                continue  # if the change was made, the next read shows it
            raise
        if new.epoch != state.epoch:
            instance.group_cache.remember(new, target)
            instance.telemetry.count("groups_rebalanced")
            _remove_old_targets(instance.stores.memberships, instance.telemetry, new)
        return new, target
    return find_group(instance.stores.memberships, group), None


def _patience_ms(state: GroupState, reach: TopicReach, now_ms: int) -> int:
    """The time until the next look if a generation may be open: a tenth of the time that the group has waited.

    It waits since the generation that it reads was closed, or since it got that.
    """
    waited_ms = now_ms - max(state.changed_at_ms, reach.closed_ms)
    return look_again_ms(waited_ms, GROUP_CHECK_MS_MIN, GROUP_CHECK_MS_MAX, GROUP_PATIENCE)


def find_group(memberships: MembershipStore, group: GroupName) -> GroupState:
    """The group as it is. One read. Raises UNKNOWN_GROUP."""
    state = memberships.get_group(group)
    if state is None:
        raise PenstockError(ErrorCode.UNKNOWN_GROUP, f"group {group} does not exist: nobody has joined it yet")
    return state


def _end_sessions(instance: Instance, group: GroupName) -> Sequence[Member]:
    """The members whose sessions go on. Deletes the items of expired members, so that their leases may be taken."""
    now_ms = instance.clock.now_ms()
    members = instance.stores.memberships.members(group)
    over = [member for member in members if member.deadline_ms < now_ms]
    results = instance.executor.map(lambda member: instance.stores.memberships.remove_member(group, member), over)
    ended = {member.name for member, is_removed in zip(over, results, strict=True) if is_removed is True}
    instance.telemetry.count("sessions_ended", len(ended))
    return [member for member in members if member.name not in ended]


def _subscribed_topics(
    topics: TopicStore, topic_cache: TopicCache, executor: Executor, members: Sequence[Member]
) -> list[Topic]:
    """The topics that some member subscribes to, as they are now. A read for each, or one of the whole topics table."""
    subscriptions = {member.subscription for member in members}
    names = sorted({name for subscription in subscriptions for name in subscription.topics})
    if len(names) > SUBSCRIPTION_LOOK_UPS_MAX or any(each.patterns for each in subscriptions):
        return [topic for topic in topics.list() if any(each.selects(topic.name) for each in subscriptions)]
    found = executor.map(topic_cache.read_through, names)
    for error in found.errors:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.INVALID_NAME):
            raise error
    return found.ok


def _remove_old_targets(memberships: MembershipStore, telemetry: Telemetry, state: GroupState) -> None:
    """Delete the targets of earlier epochs. If that fails, the next rebalance deletes them.

    A target that another rebalance is about to store has a later epoch than this one, so it stays.
    """
    try:
        memberships.remove_targets(state.name, state.epoch)
    except PenstockError:
        telemetry.count("target_removals_failed")


def readable_ends(
    instance: Instance, group: GroupName, topics: Sequence[Topic], known: Mapping[TopicId, int] = _NONE_KNOWN
) -> Mapping[TopicId, TopicReach]:
    """How far the group may read each of the topics that has older generations.

    `known` has ends of topics up to which the group has read its way; a reset makes it unknown. There the reach is that
    end until the group has finished the generation before it.

    Costs nothing for topics with one generation. For the others it costs a read of the heads of older generations, and
    one of the group's leases there, for each 100 partitions. While a group waits at a known end, these are the heads
    and leases of the generation before it.
    """
    turned = [topic for topic in topics if len(topic.generations) > 1]
    starts = {
        topic.topic_id: max(each for each in topic.generations if each < known[topic.topic_id])
        for topic in turned
        if known.get(topic.topic_id, 0) in topic.generations[1:]
    }
    waiting = [topic for topic in turned if topic.topic_id in starts]
    keys = [key for topic in waiting for key in _keys(topic, starts[topic.topic_id], known[topic.topic_id])]
    found = _reaches(instance, group, waiting, keys)
    still = {topic_id: each for topic_id, each in found.items() if each.end == known[topic_id]}
    others = [topic for topic in turned if topic.topic_id not in still]
    keys = [key for topic in others for key in _keys(topic, 0, topic.first_writable)]
    return {**still, **_reaches(instance, group, others, keys)}


def _reaches(
    instance: Instance, group: GroupName, topics: Sequence[Topic], keys: Sequence[PartitionKey]
) -> Mapping[TopicId, TopicReach]:
    """The reaches by these partitions of older generations alone."""
    if not keys:
        return {}
    heads = instance.stores.log.heads(keys)
    leases = instance.stores.groups.find_leases(group, keys)
    committed = {key: lease.offset for key, lease in leases.items() if lease.offset is not None}
    unread = {key for key in keys if not _is_read(heads.get(key), committed.get(key, 0))}
    return {topic.topic_id: _reach(topic, heads, unread, committed) for topic in topics}


def _reach(
    topic: Topic, heads: Mapping[PartitionKey, Head], unread: Collection[PartitionKey], begun: Collection[PartitionKey]
) -> TopicReach:
    reach = topic_reach(topic, _numbers(topic, unread), _numbers(topic, begun))
    if reach.holder is None:
        return reach
    head = heads[PartitionKey(topic.topic_id, Partition(reach.holder))]
    return replace(reach, closed_ms=head.closed_ms or 0)


def _keys(topic: Topic, start: int, end: int) -> list[PartitionKey]:
    return [PartitionKey(topic.topic_id, Partition(number)) for number in range(start, end)]


def _numbers(topic: Topic, keys: Collection[PartitionKey]) -> list[Partition]:
    return [key.partition for key in keys if key.topic_id == topic.topic_id]


def _is_read(head: Head | None, committed: int) -> bool:
    if head is None:
        return True  # the topic is being deleted
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return head.next_record(committed) >= end
