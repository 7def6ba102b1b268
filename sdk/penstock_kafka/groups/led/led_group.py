"""A group whose leader assigns: its members, its phases, and what each request makes of it. No I/O, no clock.

| phase     | it ends                                                                                  |
|-----------|------------------------------------------------------------------------------------------|
| `EMPTY`   | with the first JoinGroup                                                                 |
| `JOINING` | once each member has joined in this round: the generation rises, and there is a leader   |
| `SYNCING` | with the leader's SyncGroup, which has the assignments                                   |
| `STABLE`  | with a member that comes, goes or changes                                                |

Each function returns the group after an event, and the same object if the event changes nothing. Gateways store the
result by compare-and-set (docs/protocol/gateway). A write whose answer was lost may have been applied: then the same
event comes again, to the group as the write left it. So an event that has had its effect must change nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock_core.limits import GROUP_MEMBERS_MAX
from penstock_kafka.errors import KafkaError, RequestRefused


class Phase(Enum):
    """The values are in stored documents."""

    EMPTY = "empty"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedMember:
    """A member. `protocols` has the metadata that it offers, by protocol, its favourite first.

    `beats` rises with each sign of life that its gateway stores. `has_joined` belongs to the round, and `assignment` to
    the generation.
    """

    member_id: str
    client_id: str = ""
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    gateway: str = ""
    beats: int = 0
    has_joined: bool = False
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedGroup:
    """The group. `round` rises with each phase, so that two views tell whether a phase is still the same."""

    protocol_type: str
    phase: Phase = Phase.EMPTY
    round: int = 0
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: Mapping[str, LedMember] = field(default_factory=dict)

    @property
    def session_ms(self) -> int:
        """The shortest session of a member, or that of nobody."""
        return min((each.session_ms for each in self.members.values()), default=30_000)

    @property
    def rebalance_ms(self) -> int:
        """The time that a phase may take in which members are waited for."""
        return max((each.rebalance_ms for each in self.members.values()), default=0)


def joined(group: LedGroup, wish: LedMember) -> LedGroup:
    """After a JoinGroup. A member that is there, offers the same and does not lead changes nothing.

    Raises RequestRefused if its protocols are of another type, or none is offered by all, or the group is full.
    """
    known = group.members.get(wish.member_id)
    if known is None and len(group.members) >= GROUP_MEMBERS_MAX:
        raise RequestRefused(KafkaError.group_max_size_reached, f"the group has {GROUP_MEMBERS_MAX} members")
    others = [each for each in group.members.values() if each.member_id != wish.member_id]
    if not _common([*others, wish]):
        offered = ", ".join(name for name, _ in wish.protocols)
        raise RequestRefused(KafkaError.inconsistent_group_protocol, f"the others support none of {offered:.200}")
    is_same = known is not None and known.protocols == wish.protocols
    if known is not None and is_same:
        if group.phase is Phase.JOINING and known.has_joined:
            return group
        if group.phase is Phase.SYNCING or (group.phase is Phase.STABLE and group.leader != wish.member_id):
            return group
    begun = group if group.phase is Phase.JOINING else _begun(group)
    member = replace(wish, beats=known.beats + 1 if known else 1, has_joined=True)
    return _advanced(replace(begun, members={**begun.members, wish.member_id: member}))


def synced(group: LedGroup, member_id: str, generation: int, assignments: Mapping[str, bytes]) -> LedGroup:
    """After a SyncGroup, which has assignments if the leader sent it. Raises RequestRefused as `checked`."""
    checked(group, member_id, generation)
    if group.phase is Phase.JOINING:
        raise RequestRefused(KafkaError.rebalance_in_progress, "another generation is about to begin")
    if group.phase is Phase.STABLE or group.leader != member_id:
        return group
    members = {
        each.member_id: replace(each, assignment=assignments.get(each.member_id, b""))
        for each in group.members.values()
    }
    return replace(group, phase=Phase.STABLE, round=group.round + 1, members=members)


def without(group: LedGroup, member_ids: Collection[str]) -> LedGroup:
    """After these members left, or their sessions ended. The others join anew."""
    left = {name: each for name, each in group.members.items() if name not in member_ids}
    if len(left) == len(group.members):
        return group
    if not left:
        return replace(group, phase=Phase.EMPTY, round=group.round + 1, protocol="", leader="", members={})
    begun = group if group.phase is Phase.JOINING else _begun(group)
    return _advanced(replace(begun, members={name: begun.members[name] for name in left}))


def overdue(group: LedGroup) -> LedGroup:
    """After a phase took too long: members that did not join go, or the leader that did not assign."""
    match group.phase:
        case Phase.JOINING:
            return without(group, {name for name, each in group.members.items() if not each.has_joined})
        case Phase.SYNCING:
            return without(group, {group.leader})
        case Phase.EMPTY | Phase.STABLE:
            return group


def beaten(group: LedGroup, member_ids: Collection[str], gateway: str) -> LedGroup:
    """After this gateway heard of these members."""
    heard = {
        name: replace(each, beats=each.beats + 1, gateway=gateway)
        for name, each in group.members.items()
        if name in member_ids
    }
    return replace(group, members={**group.members, **heard}) if heard else group


def checked(group: LedGroup, member_id: str, generation: int) -> LedMember:
    """The member. Raises UNKNOWN_MEMBER_ID, or ILLEGAL_GENERATION if it names another generation than the group's."""
    member = group.members.get(member_id)
    if member is None:
        raise RequestRefused(KafkaError.unknown_member_id, f"the group has no member {member_id:.200}")
    if generation != group.generation:
        raise RequestRefused(KafkaError.illegal_generation, f"generation {generation} is not {group.generation}")
    return member


def metadata_of(member: LedMember, protocol: str) -> bytes:
    """What the member says of itself under this protocol."""
    return next((data for name, data in member.protocols if name == protocol), b"")


def _begun(group: LedGroup) -> LedGroup:
    """The group at the begin of a round: no member has joined in it yet."""
    members = {name: replace(each, has_joined=False) for name, each in group.members.items()}
    return replace(group, phase=Phase.JOINING, round=group.round + 1, members=members)


def _advanced(group: LedGroup) -> LedGroup:
    """The next generation, if all members have joined."""
    if not all(each.has_joined for each in group.members.values()):
        return group
    members = {name: replace(each, assignment=b"") for name, each in group.members.items()}
    return replace(
        group,
        phase=Phase.SYNCING,
        round=group.round + 1,
        generation=group.generation + 1,
        protocol=_chosen(members.values()),
        leader=group.leader if group.leader in members else min(members),
        members=members,
    )


def _common(members: Collection[LedMember]) -> set[str]:
    """The protocols that all members offer."""
    return set.intersection(*({name for name, _ in each.protocols} for each in members))


def _chosen(members: Collection[LedMember]) -> str:
    """The protocol that most members like best, of those that all offer."""
    common = _common(members)
    votes = [next(name for name, _ in each.protocols if name in common) for each in members]
    return max(sorted(common), key=votes.count)
