"""A group member's heartbeat: the member joins, extends its session, releases partitions and gets new ones.

A heartbeat takes these steps, and its function may die after any of them:

1. It reads the group. If the member joins or changes its subscription, it writes the member's item (`_enrol`).
2. If the group's target was not made for this member and subscription, it makes a new target (`rebalance`).
3. It writes the member's item: the session goes on, and the item says whether the member holds anything outside its
   part of the target. This write precedes each lease taken at that epoch, and other members rely on that order
   (`penstock_core.groups.lease`).
4. It takes the leases of the member's part that the member does not hold and whose owners have released them.
5. If a check of the group is due, it ends expired sessions and looks for new topics and partitions (`check_group`).

An idle heartbeat is one read, and one write of the member's own item. It does not name the partitions held. It may
look at the heads of partitions where the member sleeps, in place of a fetch (docs/protocol/wake-ups).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import (
    GroupState,
    Member,
    MemberProgress,
    SessionTouch,
    Subscription,
    refuse_heartbeat,
    unknown_member,
)
from penstock_core.groups.group_target import TargetAssignment
from penstock_core.groups.lease import Lease, LeasePlan, plan_leases
from penstock_core.ids import GroupName, MemberName, Offset, PartitionKey, member_name, parse_group_name
from penstock_core.limits import (
    ENROL_ATTEMPTS_MAX,
    GROUP_MEMBERS_MAX,
    HEARTBEAT_INTERVAL_MS_DEFAULT,
    HEARTBEAT_SEQUENCE_AHEAD_MS_MAX,
    HEARTBEATS_PER_SESSION_MIN,
    WAITING_HEARTBEAT_MS,
    YOUNG_GROUP_MEMBERS_MAX,
    YOUNG_GROUP_MS,
    YOUNG_HEARTBEAT_MS,
)
from penstock_core.log.index import is_armed_at
from penstock_core.outcomes import errors_maybe_applied
from penstock_service.groups.claim_group import acquire_leases
from penstock_service.groups.rebalance import check_group, create_group, rebalance
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.groups import MembershipStore
from penstock_service.ports.runtime import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A member's report. `sequence` rises with each heartbeat that the member sends, repeats included.

    `epoch` is the newest that the member knows from an answer, 0 to join. To join or to change its subscription, the
    member names a `subscription`. `session` is the number in the answer to its join. `owned` has all partitions that
    the member holds. It may be None once an answer was complete. `config` has the settings of a group that this
    heartbeat creates. `watched` has the positions of partitions where the member sleeps until a wake-up.

    Each heartbeat of a member names `session_timeout_ms`, or leaves it to the group. `looks_at_topics`: the member has
    seen a change of the topics that the group may not know yet.
    """

    member_id: str
    sequence: int
    epoch: int
    session: int = 0
    instance_id: str | None = None
    client_id: str = ""
    subscription: Subscription | None = None
    owned: frozenset[PartitionKey] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    watched: Mapping[PartitionKey, Offset] = field(default_factory=dict)
    session_timeout_ms: int | None = None
    looks_at_topics: bool = False

    @property
    def name(self) -> MemberName:
        """The group's name for the member. Raises INVALID_NAME."""
        return member_name(self.member_id, self.instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a member. `granted` has the leases that it holds now and did not hold before.

    Of these, `late` came after the group had begun to read: without an offset the member reads them from the beginning.
    The member commits for the last time on the `revoked` partitions, then releases them. Until an answer `is_complete`,
    the member's next heartbeat names all partitions that it holds. `waiting` counts the partitions that it will get
    later. Members of a group that `is_young` keep to `heartbeat_after_ms` however idle they are. `armed` has the
    watched partitions where the member may sleep on (`still_armed`), None if the heartbeat did not look.
    """

    epoch: int
    session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Sequence[Lease] = ()
    late: frozenset[PartitionKey] = frozenset()
    revoked: Sequence[PartitionKey] = ()
    waiting: int = 0
    is_young: bool = False
    armed: frozenset[PartitionKey] | None = None


def heartbeat(
    instance: Instance, group_name: str, beat: HeartbeatRequest, access: Access = UNRESTRICTED
) -> HeartbeatAnswer:
    """The answer to one heartbeat of a member. An idle one costs one read and one write.

    With `watched` it costs one read of those heads more. A member gets no partition of a topic that `access` may not
    read, whatever its pattern says.

    Otherwise it costs the target (a query, unless remembered) and a read of the member. For 100 leases at most it adds
    one read of them, one of their owners, and a conditional update each. A rebalance or a check comes on top.

    Raises INVALID_NAME, INVALID_REQUEST, INVALID_CONFIG; UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT, GROUP_FULL;
    QUOTA_EXCEEDED for the first member of a group; CONCURRENT_UPDATE if heartbeats of the same member kept
    changing it meanwhile.
    """
    group, name = parse_group_name(group_name), beat.name
    _check_request(beat)
    _check_sequence(instance.clock, beat)
    window = UpdateWindow.open(instance.clock)
    state = instance.stores.memberships.get_group(group)
    member = None
    if beat.subscription is not None:
        is_new = state is None
        state = state or create_group(instance, window, access.principal.name, group, beat.config)
        with errors_maybe_applied(has_begun=is_new):
            member = _enrol(instance.stores.memberships, instance.clock, state, beat, beat.subscription)
    if state is None:
        raise unknown_member(group, name)
    with errors_maybe_applied(has_begun=member is not None):
        if member is None and beat.owned is None:
            answer = _extend_idle(instance, state, beat)
        else:
            member = member or _known_member(instance.stores.memberships, group, beat)
            state, target = _target_for(instance, state, member)
            answer = _reconcile(instance, state, target, member, beat, access)
    with errors_maybe_applied():
        answer = _check_if_due(instance, state, beat, answer)
        return replace(answer, armed=look_at_watched(instance, state, beat.name, beat.watched, access))


def leave(instance: Instance, group_name: str, beat: HeartbeatRequest) -> HeartbeatAnswer:
    """The member is gone once this returns, and other members may take its leases.

    A read of the group and of the member, one conditional delete, and a rebalance. Raises as `heartbeat`.
    """
    group, name = parse_group_name(group_name), beat.name
    _check_sequence(instance.clock, beat)
    memberships = instance.stores.memberships
    state = memberships.get_group(group)
    member = memberships.find_members(group, [name]).get(name)
    refuse_heartbeat(member, group, name, beat.member_id, beat.sequence, None)
    if state is None or member is None:
        raise unknown_member(group, name)
    # A delete that the driver sent again finds nothing left to delete.
    if not memberships.remove_member(group, member) and memberships.find_members(group, [name]):
        raise _concurrent_heartbeats(group, name)
    try:
        state, _ = rebalance(instance, group, lambda target: not target.part_of(name))
    except PenstockError:
        instance.telemetry.count("group_rebalances_failed")  # the next check finds that the target does not fit
    return _plain_answer(instance.clock.now_ms(), state, beat, state.epoch, member.session)


def _check_request(beat: HeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a join or a session that contradicts itself."""
    if beat.epoch == 0 and (beat.subscription is None or beat.owned):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            "a member joins (epoch 0) with a subscription and without partitions that it holds",
        )
    if beat.epoch != 0 and beat.subscription is not None and beat.owned is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, "a heartbeat with a new subscription names all partitions that its member holds"
        )
    if beat.epoch != 0 and beat.session == 0:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a heartbeat with epoch {beat.epoch} names its session: the number in the answer to the member's join",
        )


def _check_sequence(clock: Clock, beat: HeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a sequence that neither a count nor a clock gives: all later ones would be stale."""
    newest = clock.now_ms() + HEARTBEAT_SEQUENCE_AHEAD_MS_MAX
    if beat.sequence > newest:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"heartbeat with sequence {beat.sequence}: count from 1, or use a clock in ms; {newest} at most now",
        )


def _enrol(
    memberships: MembershipStore, clock: Clock, state: GroupState, beat: HeartbeatRequest, subscription: Subscription
) -> Member:
    """Write the item of a member that joins or changes its subscription. The item says that it knows no epoch yet."""
    for _ in range(ENROL_ATTEMPTS_MAX):
        stored = memberships.find_members(state.name, [beat.name]).get(beat.name)
        if beat.epoch != 0 or (stored is not None and stored.member_id == beat.member_id):
            session = None if beat.epoch == 0 else beat.session
            refuse_heartbeat(stored, state.name, beat.name, beat.member_id, beat.sequence, session)
        if stored is None and state.member_count >= GROUP_MEMBERS_MAX:
            raise PenstockError(
                ErrorCode.GROUP_FULL,
                f"group {state.name} has {state.member_count} members: {GROUP_MEMBERS_MAX} at most",
            )
        now_ms = clock.now_ms()
        new = Member(
            name=beat.name,
            member_id=beat.member_id,
            instance_id=beat.instance_id,
            client_id=beat.client_id,
            subscription=subscription,
            sequence=beat.sequence - 1,  # this heartbeat's own progress is still to be written
            session=beat.sequence if beat.epoch == 0 else beat.session,
            deadline_ms=now_ms + _session_timeout_ms(state, beat),
            session_timeout_ms=beat.session_timeout_ms,
            joined_at_ms=now_ms if stored is None else stored.joined_at_ms,
        )
        try:
            memberships.put_member(state.name, stored, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
        else:
            return new
    raise _concurrent_heartbeats(state.name, beat.name)


def _extend_idle(instance: Instance, state: GroupState, beat: HeartbeatRequest) -> HeartbeatAnswer:
    """Extend the session of a member that reports nothing. If it knows an older epoch, ask for all that it holds."""
    member = _extend_session(instance, state, beat, beat.session, None)
    answer = _plain_answer(instance.clock.now_ms(), state, beat, beat.epoch, beat.session)
    if state.epoch == beat.epoch == member.epoch:
        return answer
    return replace(answer, is_complete=False, heartbeat_after_ms=0)


def _known_member(memberships: MembershipStore, group: GroupName, beat: HeartbeatRequest) -> Member:
    """The member as stored. One read. Raises UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT."""
    member = memberships.find_members(group, [beat.name]).get(beat.name)
    refuse_heartbeat(member, group, beat.name, beat.member_id, beat.sequence, beat.session)
    if member is None:
        raise unknown_member(group, beat.name)
    return member


def _target_for(instance: Instance, state: GroupState, member: Member) -> tuple[GroupState, TargetAssignment | None]:
    """The group and a target that was made for this member; None if the group changed too fast to make one."""
    target = instance.group_cache.target_of(state)
    if target is not None and target.includes(member):
        return state, target
    try:
        return rebalance(instance, state.name, lambda found: found.includes(member))
    except PenstockError as error:
        if error.code is not ErrorCode.UNKNOWN_GROUP:
            raise
        raise unknown_member(state.name, member.name) from error  # the group was deleted meanwhile


def _reconcile(
    instance: Instance,
    state: GroupState,
    target: TargetAssignment | None,
    member: Member,
    beat: HeartbeatRequest,
    access: Access,
) -> HeartbeatAnswer:
    """Compare the member's partitions with its part of the target: revoke some of them, and take leases."""
    if target is None:  # many members join at once: this one's turn comes later
        _extend_session(instance, state, beat, member.session, None)
        answer = _plain_answer(instance.clock.now_ms(), state, beat, beat.epoch, member.session)
        return replace(answer, is_complete=False, heartbeat_after_ms=WAITING_HEARTBEAT_MS)
    assigned = target.part_of(member.name)
    readable = {*access.readable({*assigned.values()})}
    part = {key: topic for key, topic in assigned.items() if topic in readable}
    plan = plan_leases(part, beat.owned or frozenset(), beat.sequence)
    progress = MemberProgress(epoch=state.epoch, is_settled=not plan.revoked)
    _extend_session(instance, state, beat, member.session, progress)
    tried = {key: part[key] for key in plan.tried}
    granted, is_outdated = acquire_leases(instance, state, member.name, tried, access.principal.name)
    plain = _plain_answer(instance.clock.now_ms(), state, beat, state.epoch, member.session)
    answer = _lease_answer(plain, plan, granted, is_outdated=is_outdated)
    return replace(answer, late=frozenset(lease.partition for lease in granted if target.is_late(lease.partition)))


def _lease_answer(
    plain: HeartbeatAnswer, plan: LeasePlan, granted: Sequence[Lease], *, is_outdated: bool
) -> HeartbeatAnswer:
    """The answer with the leases granted. The next heartbeat comes at once if it may get more, soon if it must wait."""
    waiting = len(plan.wanted) - len(granted)
    after_ms = plain.heartbeat_after_ms
    if is_outdated or (plan.leaves_some_untried and granted):
        after_ms = 0
    elif waiting:
        after_ms = min(after_ms, WAITING_HEARTBEAT_MS)
    return replace(
        plain,
        heartbeat_after_ms=after_ms,
        is_complete=not plan.revoked and not waiting,
        granted=granted,
        revoked=plan.revoked,
        waiting=waiting,
    )


def _check_if_due(
    instance: Instance, state: GroupState, beat: HeartbeatRequest, answer: HeartbeatAnswer
) -> HeartbeatAnswer:
    """Check the group if a check is due, or the member wants one.

    An error of the check does not fail the heartbeat: its answer counts.
    """
    if instance.clock.now_ms() < state.next_check_ms and not beat.looks_at_topics:
        return answer
    try:
        checked = check_group(instance, state)
    except PenstockError:
        instance.telemetry.count("group_checks_failed")
        return answer
    return answer if checked.epoch == state.epoch else replace(answer, is_complete=False, heartbeat_after_ms=0)


def _extend_session(
    instance: Instance, state: GroupState, beat: HeartbeatRequest, session: int, progress: MemberProgress | None
) -> Member:
    """Write the member's item: its session goes on, with this progress. One conditional update."""
    deadline_ms = instance.clock.now_ms() + _session_timeout_ms(state, beat)
    touch = SessionTouch(
        member_id=beat.member_id, sequence=beat.sequence, session=session, deadline_ms=deadline_ms, report=progress
    )
    return instance.stores.memberships.touch_member(state.name, beat.name, touch)


def _plain_answer(now_ms: int, state: GroupState, beat: HeartbeatRequest, epoch: int, session: int) -> HeartbeatAnswer:
    """An answer that changes nothing for the member. Members of a young group come soon, because others are to join.

    A group with an interval of its own keeps to that. A large group does so, too: it would spend what one item gives.
    """
    session_timeout_ms = _session_timeout_ms(state, beat)
    after_ms = min(state.config.heartbeat_interval_ms, session_timeout_ms // HEARTBEATS_PER_SESSION_MIN)
    has_default = state.config.heartbeat_interval_ms == HEARTBEAT_INTERVAL_MS_DEFAULT
    is_small = state.member_count <= YOUNG_GROUP_MEMBERS_MAX
    is_young = has_default and is_small and now_ms - (state.created_at_ms or 0) < YOUNG_GROUP_MS
    return HeartbeatAnswer(
        epoch=epoch,
        session=session,
        heartbeat_after_ms=min(after_ms, YOUNG_HEARTBEAT_MS) if is_young else after_ms,
        session_timeout_ms=session_timeout_ms,
        is_complete=True,
        is_young=is_young,
    )


def _session_timeout_ms(state: GroupState, beat: HeartbeatRequest) -> int:
    """The member's own session time-out, or the group's."""
    return beat.session_timeout_ms or state.config.session_timeout_ms


def _concurrent_heartbeats(group: GroupName, name: MemberName) -> PenstockError:
    return PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"other heartbeats of member {name} of group {group} come at this moment: try again",
    )


def look_at_watched(
    instance: Instance, state: GroupState, name: MemberName, watched: Mapping[PartitionKey, Offset], access: Access
) -> frozenset[PartitionKey] | None:
    """The watched partitions on which the member may sleep on. None if it watches none, or if the look failed.

    The target tells the topics of the member's partitions. Of other partitions, and of topics that the caller may not
    read, the answer tells nothing: the member fetches them, and learns what it may know. One read of the heads, and one
    query of the target unless it is remembered. An error does not fail the heartbeat.
    """
    if not watched:
        return None
    try:
        target = instance.group_cache.target_of(state)
        own = {} if target is None else target.part_of(name)
        readable = {*access.readable({own[key] for key in watched if key in own})}
        seen = {key: offset for key, offset in watched.items() if key in own and own[key] in readable}
        return still_armed(instance, seen)
    except PenstockError:
        instance.telemetry.count("watched_looks_failed")
        return None


def still_armed(instance: Instance, positions: Mapping[PartitionKey, Offset]) -> frozenset[PartitionKey]:
    """The partitions where the next append sends a wake-up, and where the reader at that position has missed none.

    The others have records for the reader, have no waiter, or are gone: it fetches them. One consistent read of all
    heads, a call for each 100. It writes nothing: a head at the reader's position keeps its waiter until an append.
    No read, and no partition, where the stage has no wake-ups.
    """
    if not positions or instance.stores.wake_ups.place is None:
        return frozenset()
    heads = instance.stores.log.heads(list(positions))
    return frozenset(key for key, head in heads.items() if is_armed_at(head, positions[key]))
