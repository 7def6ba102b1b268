"""A group member's heartbeat: it joins, keeps its session, lets go of partitions, and is given others.

In this order, each step of which may be the last that a function takes:

1. The group is read. A member that joins, or changes its subscription, has its own item written.
2. If the group's target does not know the member so, a new one is made (`rebalance`).
3. The member's item is written: the session goes on, and what the member says it holds is weighed against its part of
   the target. This write comes before any lease is taken at that epoch: others rely on it (`penstock_core.lease`).
4. Leases of the member's part that it does not hold are taken, as far as their owners have let go of them.
5. Once in a while somebody looks after sessions that have ended and topics that have grown.

An idle heartbeat is one read and one write of the member's own item. It names nothing that it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_broker.acquire_leases import acquire_leases
from penstock_broker.broker import Broker
from penstock_broker.rebalance import check_group, create_group, rebalance
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import GroupState, Member, Report, Subscription
from penstock_core.group_target import Target
from penstock_core.ids import GroupName, MemberName, member_name, parse_group_name
from penstock_core.keys import PartitionKey
from penstock_core.lease import CLAIMS, Claim, Lease
from penstock_core.limits import ACQUIRE_MAX, GROUP_MEMBERS_MAX, WAITING_HEARTBEAT_MS
from penstock_core.sessions import refuse_heartbeat, unknown_member

_ENROL_ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a member says. `sequence` rises with each heartbeat that it sends, also with one that it sends again.

    `epoch` is the newest that it was told, 0 to join; it joins, or changes its subscription, by naming one. `session`
    is the number that the answer to its join gave. `owned` is all that it holds, and may be None once it has been told
    that it is complete. `config` is for the group, if this makes it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the member is told. `granted` are leases that it has now beside those that it held; `revoked` it has to
    let go of, after its last commit. Until it `is_complete` its next heartbeat names what it holds. `waiting` counts
    the partitions that are to come."""

    epoch: int
    session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: Sequence[Lease] = ()
    revoked: Sequence[PartitionKey] = ()
    waiting: int = 0


def heartbeat(broker: Broker, group_name: str, beat: Beat) -> Assignment:
    """Idle: one read and one write. Otherwise the target (a query, unless remembered), a read of the member, and for
    100 leases at most one read of them, one of their owners, and a conditional update each.

    Raises INVALID_NAME, INVALID_REQUEST, INVALID_CONFIG; UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT, GROUP_FULL;
    CONCURRENT_UPDATE if heartbeats of the same member kept changing it meanwhile.
    """
    group = parse_group_name(group_name)
    name = member_name(beat.member_id, beat.instance_id)
    if beat.epoch == 0 and (beat.subscription is None or beat.owned):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            "a member joins (epoch 0) with a subscription and without partitions that it holds",
        )
    if beat.epoch != 0 and beat.session == 0:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a heartbeat with epoch {beat.epoch} names its session: the number in the answer to the member's join",
        )
    state = broker.memberships.get_group(group)
    member = None
    if beat.subscription is not None:
        state = state or create_group(broker, group, beat.config)
        member = _enrol(broker, state, name, beat, beat.subscription)
    if state is None:
        raise unknown_member(group, name)
    if member is None and beat.owned is None:
        answer = _keep(broker, state, name, beat)
    else:
        state, answer = _reconcile(broker, state, name, member, beat)
    return _look_after(broker, state, answer)


def leave(broker: Broker, group_name: str, beat: Beat) -> Assignment:
    """The member is gone once this returns, and others may take its leases. A read of the group and of the member, one
    conditional delete, and a rebalance. Raises as `heartbeat`."""
    group = parse_group_name(group_name)
    name = member_name(beat.member_id, beat.instance_id)
    state = broker.memberships.get_group(group)
    member = broker.memberships.find_members(group, [name]).get(name)
    refuse_heartbeat(member, group, name, beat.member_id, beat.sequence, None)
    if state is None or member is None:
        raise unknown_member(group, name)
    # A delete that the driver sent again finds nothing left to delete.
    if not broker.memberships.remove_member(group, member) and broker.memberships.find_members(group, [name]):
        raise _busy(group, name)
    try:
        state, _ = rebalance(broker, group, lambda target: not target.part_of(name))
    except PenstockError:
        broker.events.count("group_rebalances_failed")  # the next check finds that the target does not fit
    return _told(state, state.epoch, member.session)


def _enrol(broker: Broker, state: GroupState, name: MemberName, beat: Beat, subscription: Subscription) -> Member:
    """Writes the item of a member that joins, or whose subscription is another, as one that knows no epoch yet."""
    for _ in range(_ENROL_ATTEMPTS_MAX):
        stored = broker.memberships.find_members(state.name, [name]).get(name)
        if beat.epoch != 0 or (stored is not None and stored.member_id == beat.member_id):
            session = None if beat.epoch == 0 else beat.session
            refuse_heartbeat(stored, state.name, name, beat.member_id, beat.sequence, session)
        if stored is None and state.member_count >= GROUP_MEMBERS_MAX:
            raise PenstockError(
                ErrorCode.GROUP_FULL,
                f"group {state.name} has {state.member_count} members: {GROUP_MEMBERS_MAX} at most",
            )
        now_ms = broker.clock.now_ms()
        new = Member(
            name=name,
            member_id=beat.member_id,
            instance_id=beat.instance_id,
            client_id=beat.client_id,
            subscription=subscription,
            sequence=beat.sequence - 1,  # the report of this same heartbeat is still to come
            session=beat.sequence if beat.epoch == 0 else beat.session,
            deadline_ms=now_ms + state.config.session_timeout_ms,
            joined_at_ms=now_ms if stored is None else stored.joined_at_ms,
        )
        try:
            broker.memberships.put_member(state.name, stored, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
        else:
            return new
    raise _busy(state.name, name)


def _keep(broker: Broker, state: GroupState, name: MemberName, beat: Beat) -> Assignment:
    """The session goes on. A member that knows of an older epoch is asked what it holds."""
    member = _touch(broker, state, name, beat, beat.session, None)
    is_complete = state.epoch == beat.epoch == member.epoch
    answer = _told(state, beat.epoch, beat.session)
    return answer if is_complete else replace(answer, is_complete=False, heartbeat_after_ms=0)


def _reconcile(
    broker: Broker, state: GroupState, name: MemberName, enrolled: Member | None, beat: Beat
) -> tuple[GroupState, Assignment]:
    member = enrolled or broker.memberships.find_members(state.name, [name]).get(name)
    if enrolled is None:
        refuse_heartbeat(member, state.name, name, beat.member_id, beat.sequence, beat.session)
    assert member is not None
    session = member.session
    target: Target | None = broker.group_directory.target_of(state)
    if target is None or not target.includes(member):
        try:
            state, target = rebalance(broker, state.name, lambda found: found.includes(member))
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_GROUP:
                raise
            raise unknown_member(state.name, name) from error  # the group was deleted meanwhile
    if target is None:  # others join faster than this one: its turn comes
        _touch(broker, state, name, beat, session, None)
        answer = _told(state, beat.epoch, session)
        return state, replace(answer, is_complete=False, heartbeat_after_ms=WAITING_HEARTBEAT_MS)
    part, owned = target.part_of(name), beat.owned or frozenset()
    claims = {key: CLAIMS[key in part, key in owned] for key in [*part, *owned]}
    revoked = sorted(key for key, claim in claims.items() if claim is Claim.REVOKE)
    wanted = sorted(key for key, claim in claims.items() if claim is Claim.ACQUIRE)
    _touch(broker, state, name, beat, session, Report(epoch=state.epoch, is_settled=not revoked))
    # Not always the same first ones, which others may be slow to let go of.
    start = beat.sequence * ACQUIRE_MAX % len(wanted) if len(wanted) > ACQUIRE_MAX else 0
    tried = (wanted[start:] + wanted[:start])[:ACQUIRE_MAX]
    granted, is_outdated = acquire_leases(broker, state, name, {key: part[key] for key in tried})
    waiting = len(wanted) - len(granted)
    is_more_to_try = len(tried) < len(wanted)
    answer = _told(state, state.epoch, session)
    after_ms = min(answer.heartbeat_after_ms, WAITING_HEARTBEAT_MS) if waiting else answer.heartbeat_after_ms
    return state, replace(
        answer,
        heartbeat_after_ms=0 if is_outdated or (is_more_to_try and granted) else after_ms,
        is_complete=not revoked and not waiting,
        granted=granted,
        revoked=revoked,
        waiting=waiting,
    )


def _look_after(broker: Broker, state: GroupState, answer: Assignment) -> Assignment:
    """Sees to the group if it is time. What goes wrong there is not this member's: it has its answer, which must not
    get lost."""
    if broker.clock.now_ms() < state.next_check_ms:
        return answer
    try:
        checked = check_group(broker, state)
    except PenstockError:
        broker.events.count("group_checks_failed")
        return answer
    return answer if checked.epoch == state.epoch else replace(answer, is_complete=False, heartbeat_after_ms=0)


def _touch(
    broker: Broker, state: GroupState, name: MemberName, beat: Beat, session: int, report: Report | None
) -> Member:
    deadline_ms = broker.clock.now_ms() + state.config.session_timeout_ms
    return broker.memberships.touch_member(
        state.name, name, beat.member_id, beat.sequence, session, deadline_ms, report
    )


def _told(state: GroupState, epoch: int, session: int) -> Assignment:
    return Assignment(
        epoch=epoch,
        session=session,
        heartbeat_after_ms=state.config.heartbeat_interval_ms,
        session_timeout_ms=state.config.session_timeout_ms,
        is_complete=True,
    )


def _busy(group: GroupName, name: MemberName) -> PenstockError:
    return PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"other heartbeats of member {name} of group {group} come at this moment: try again",
    )
