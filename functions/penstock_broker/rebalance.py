"""Make a group's target assignment fit its members and topics, by compare-and-set on the group's item.

Whoever changes a member's item (joins, leaves, changes a subscription, ends a session) does that first and rebalances
after. So of two at the same time, the later to read the group meets both changes, and the earlier cannot store a
target that lacks one: its compare-and-set would come after the other's, and fail. If somebody dies in between, the
next check, which compares the target with what it should be made for, does what they have not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import GroupConfig, GroupState, Member, alter_group_config, next_check_ms
from penstock_core.group_target import EMPTY_TARGET, Target, encode_target, make_target
from penstock_core.ids import EPOCH_BYTES, GROUP_EPOCH_BYTES, GroupName, drawn_number
from penstock_core.topic import Topic

_ATTEMPTS_MAX = 5
_CHECK_MS_MAX = 10_000  # within which whoever begins a check ends it, or another begins one
_LOOK_UPS_MAX = 20  # topics read one by one; more are read with all others
_TARGET_ID_BYTES = 8


def create_group(broker: Broker, group: GroupName, config: Mapping[str, Any]) -> GroupState:
    """The group's item, made now unless somebody else just has. One conditional put, and one to have it listed.
    Raises INVALID_CONFIG.

    Its version and first epoch are drawn: what was begun for a group of this name that was deleted must not be taken
    for this one's."""
    now_ms = broker.clock.now_ms()
    new = GroupState(
        name=group,
        version=drawn_number(broker.chance.random_bytes(EPOCH_BYTES)),
        config=alter_group_config(GroupConfig(), config),
        next_check_ms=now_ms,
        changed_at_ms=now_ms,
        empty_since_ms=now_ms,
    )
    broker.group_directory.register(group)
    try:
        broker.memberships.change_group(None, new)
    except PenstockError as error:
        found = broker.memberships.get_group(group) if error.code is ErrorCode.CONCURRENT_UPDATE else None
        if found is None:
            raise
        return found
    return new


def check_group(broker: Broker, state: GroupState) -> GroupState:
    """Ends sessions that are over and notices topics that have changed; the group as it is then. Of many that find
    a check due, one does it. Two conditional puts, a query of the members, the reads of their topics, and the target.
    """
    claimed = replace(state, version=state.version + 1, next_check_ms=broker.clock.now_ms() + _CHECK_MS_MAX)
    try:
        broker.memberships.change_group(state, claimed)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
        return state  # it is in another's hands
    checked, _ = rebalance(broker, state.name)
    return checked


def rebalance(
    broker: Broker,
    group: GroupName,
    is_enough: Callable[[Target], bool] = lambda _: False,
    *,
    is_forced: bool = False,
) -> tuple[GroupState, Target | None]:
    """The group and its target once that fits, or `is_enough`; None for the target if others changed the group five
    times meanwhile. `is_forced` makes a new target in any case.

    For each attempt a read, a query of the members, the reads of their topics, the puts of the target, one
    conditional put. Raises UNKNOWN_GROUP.
    """
    missing = None
    for _ in range(_ATTEMPTS_MAX):
        state = find_group(broker, group)
        previous = broker.group_directory.target_of(state)
        if previous is None and missing != state.target_id:
            missing = state.target_id  # there is a newer one, unless the next look finds the group as it is
            continue
        if previous is not None and is_enough(previous) and not is_forced:
            return state, previous
        members = _end_sessions(broker, group)
        topics = _subscribed(broker, members)
        if previous is not None and previous.fits(members, topics) and not is_forced:
            new, target = _checked(state, members, broker.clock.now_ms()), previous
        else:
            # It is gone if a deletion of the group that was before this one was slow.
            target = make_target(state.config.assignor, members, topics, previous or EMPTY_TARGET)
            new = _advanced(broker, state, members)
            broker.memberships.put_target(group, new.epoch, new.target_id, encode_target(target))
        try:
            broker.memberships.change_group(state, new)
        except PenstockError as error:
            if error.code is ErrorCode.CONCURRENT_UPDATE or error.maybe_applied:
                continue  # if the change was made, the next look shows it
            raise
        if new.epoch != state.epoch:
            broker.group_directory.remember(new, target)
            broker.events.count("groups_rebalanced")
            _remove_targets(broker, new)
        return new, target
    return find_group(broker, group), None


def find_group(broker: Broker, group: GroupName) -> GroupState:
    """The group as it is. One read. Raises UNKNOWN_GROUP."""
    state = broker.memberships.get_group(group)
    if state is None:
        raise PenstockError(ErrorCode.UNKNOWN_GROUP, f"group {group} does not exist: nobody has joined it yet")
    return state


def _end_sessions(broker: Broker, group: GroupName) -> Sequence[Member]:
    """The members whose sessions go on; the items of the others are gone, so that their leases may be taken."""
    now_ms = broker.clock.now_ms()
    members = broker.memberships.members(group)
    over = [member for member in members if member.deadline_ms < now_ms]
    results = broker.parallel.map(lambda member: broker.memberships.remove_member(group, member), over)
    ended = {member.name for member, result in zip(over, results, strict=True) if result is True}
    broker.events.count("sessions_ended", len(ended))
    return [member for member in members if member.name not in ended]


def _subscribed(broker: Broker, members: Sequence[Member]) -> list[Topic]:
    """The topics that some member subscribes to, as they are now."""
    subscriptions = {member.subscription for member in members}
    names = sorted({name for subscription in subscriptions for name in subscription.topics})
    if len(names) > _LOOK_UPS_MAX or any(subscription.patterns for subscription in subscriptions):
        topics = broker.topics.list()
        return [topic for topic in topics if any(subscription.selects(topic.name) for subscription in subscriptions)]
    found: list[Topic] = []
    for result in broker.parallel.map(broker.directory.look_up, names):
        if isinstance(result, Topic):
            found.append(result)
        elif result.code not in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.INVALID_NAME):
            raise result
    return found


def _checked(state: GroupState, members: Sequence[Member], now_ms: int) -> GroupState:
    is_empty = not members
    return replace(
        state,
        version=state.version + 1,
        next_check_ms=next_check_ms(members, now_ms),
        empty_since_ms=(state.empty_since_ms or now_ms) if is_empty else None,
    )


def _advanced(broker: Broker, state: GroupState, members: Sequence[Member]) -> GroupState:
    now_ms = broker.clock.now_ms()
    return replace(
        _checked(state, members, now_ms),
        epoch=state.epoch + 1 if state.epoch else drawn_number(broker.chance.random_bytes(GROUP_EPOCH_BYTES)),
        target_id=broker.chance.random_bytes(_TARGET_ID_BYTES).hex(),
        member_count=len(members),
        changed_at_ms=now_ms,
    )


def _remove_targets(broker: Broker, state: GroupState) -> None:
    """Those of earlier epochs; what is left now goes with the next. One that somebody else is about to store has a
    later epoch than this, so it stays."""
    try:
        broker.memberships.remove_targets(state.name, state.epoch)
    except PenstockError:
        broker.events.count("target_removals_failed")
