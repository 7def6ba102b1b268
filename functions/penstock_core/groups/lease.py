"""Leases: which member may use a partition for a group, and what its heartbeats and commits may do.

A lease has an owner, an epoch, and the group's committed offset. The epoch rises whenever the owner changes or is told
anew. A change of owner is conditional on the epoch that its writer saw, so of two that try, one succeeds. A commit
counts only for the owner and epoch in the lease. Clocks decide nothing here.

A lease's first epoch is drawn at random (`next_lease_epoch`). A group may be deleted and made again, or its offsets may
expire. Even then no lease gets an epoch that a sleeping member still holds.

A heartbeat acts on each partition by two facts: the member's part of the target has the partition, and the member says
that it holds it.

| in its target | held  |                                                                        |
|---------------|-------|------------------------------------------------------------------------|
| yes           | yes   | KEEP                                                                   |
| yes           | no    | ACQUIRE, if its lease lets it (below)                                  |
| no            | yes   | REVOKE: the member commits, lets go, and no longer names it as held    |
| no            | no    | LEAVE: its lease may still name the member, which does no harm         |

No member writes a release. A member is *settled* at epoch E once it holds nothing outside its part of the target of E,
and its own item says so. From then on, the members that got its other partitions at E may take their leases over.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Member
from penstock_core.ids import MemberName, Offset, PartitionKey, TopicName
from penstock_core.limits import ACQUIRE_MAX, COMMIT_METADATA_BYTES_MAX, COMMIT_OFFSET_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease's item.

    `epoch` is 0 if no member has ever owned the lease. `offset` is None if the group has committed nothing.
    `leader_epoch` is the one that the committer named with the offset (KIP-320).
    """

    topic: TopicName
    partition: PartitionKey
    owner: MemberName | None = None
    epoch: int = 0
    offset: Offset | None = None
    metadata: str = ""
    committed_at_ms: int = 0
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseToken:
    """A member's proof for a commit: it owns the lease under this epoch."""

    owner: MemberName
    epoch: int


class LeaseAction(Enum):
    """The action of a heartbeat on one partition."""

    KEEP = "keep"
    ACQUIRE = "acquire"
    REVOKE = "revoke"
    LEAVE = "leave"


LEASE_ACTIONS: Mapping[tuple[bool, bool], LeaseAction] = {  # (in its target, held)
    (True, True): LeaseAction.KEEP,
    (True, False): LeaseAction.ACQUIRE,
    (False, True): LeaseAction.REVOKE,
    (False, False): LeaseAction.LEAVE,
}


class HolderState(Enum):
    """The owner of a lease, as a member sees it.

    The member works towards the target of some epoch E, which gives it the partition.
    """

    NOBODY = "nobody"
    SELF = "self"  # an answer was lost, or the member's process is a new one
    GONE = "gone"  # its session has ended: there is no member of that name
    SETTLED = "settled"  # at E: it holds nothing outside its part of the target, so not this partition
    UNSETTLED = "unsettled"  # it may hold the partition still
    AHEAD = "ahead"  # it knows a target newer than E, which may have given it the partition


class TakeDecision(Enum):
    """The decision about a lease that a member wants."""

    TAKE = "take"
    WAIT = "wait"
    LOOK_AGAIN = "look again"  # at the group: there is a newer epoch


TAKE_DECISIONS: Mapping[HolderState, TakeDecision] = {
    HolderState.NOBODY: TakeDecision.TAKE,
    HolderState.SELF: TakeDecision.TAKE,
    HolderState.GONE: TakeDecision.TAKE,
    HolderState.SETTLED: TakeDecision.TAKE,
    HolderState.UNSETTLED: TakeDecision.WAIT,
    HolderState.AHEAD: TakeDecision.LOOK_AGAIN,
}


def next_lease_epoch(seen: Lease, first_epoch: int) -> int:
    """The epoch after the one that was seen.

    A lease that never had an epoch gets `first_epoch`, which the caller draws (`ids.random_start`).
    """
    return seen.epoch + 1 if seen.epoch else first_epoch


def holder_of(lease: Lease | None, taker: MemberName, epoch: int, members: Mapping[MemberName, Member]) -> HolderState:
    """The owner that is in the way of `taker`, to whom the target of `epoch` gives this lease.

    `members` are the owners' items, **read after the lease**. An owner that acquired the lease at a newer epoch had
    written before that it knows that epoch. So an item read later shows it.
    """
    if lease is None or lease.owner is None:
        return HolderState.NOBODY
    if lease.owner == taker:
        return HolderState.SELF
    owner = members.get(lease.owner)
    if owner is None:
        return HolderState.GONE
    if owner.epoch > epoch:
        return HolderState.AHEAD
    return HolderState.SETTLED if owner.epoch == epoch and owner.is_settled else HolderState.UNSETTLED


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCommit:
    """A commit as a client saw it: the offset, and when it was committed.

    A commit may go back from it as long as it is the last one. So a copy of that commit that comes late undoes nothing:
    a later commit has another time, even if it has the same offset again.
    """

    offset: Offset
    committed_at_ms: int


MayGoBack = bool | SeenCommit


"""True: whatever is committed. A commit that was seen: only from that one."""


def refusal(
    lease: Lease | None,
    key: PartitionKey,
    offset: Offset,
    token: LeaseToken | None,
    *,
    may_go_back: MayGoBack,
    may_create: bool = True,
) -> PenstockError | None:
    """The error of a commit of `offset`, or None if the commit counts.

    Unless it `may_create`, a commit needs a lease that is there: with one, its group is there, too.

    `storage.lease_item.commit_update` states the same rule as a condition. The
    contract test `test_commit_is_refused_exactly_where_lease_refusal_says` holds the two together.
    """
    owner, epoch = (None, 0) if lease is None else (lease.owner, lease.epoch)
    if token is not None and (owner, epoch) != (token.owner, token.epoch):
        return PenstockError(
            ErrorCode.LEASE_FENCED,
            f"partition {key} is not this member's under lease epoch {token.epoch}: the lease has epoch {epoch} now. "
            "Nothing was committed: drop the partition, and report what is still held",
            lease_epoch=epoch,
        )
    if lease is None and token is None and not may_create:
        return PenstockError(ErrorCode.UNKNOWN_GROUP, f"the group has no lease on partition {key} yet")
    if token is None and owner is not None:
        return PenstockError(
            ErrorCode.LEASE_HELD,
            f"partition {key} belongs to a member of the group: only that one commits for it, under its lease's epoch",
        )
    if (
        lease is not None
        and lease.offset is not None
        and offset < lease.offset
        and not _may_go_back(lease, may_go_back)
    ):
        return PenstockError(
            ErrorCode.OFFSET_BEHIND,
            f"offset {offset} of partition {key} is behind the committed {lease.offset}: nothing was committed. "
            "To go back on purpose, name that commit (back_from; may_go_back in the SDK's Admin)",
            committed_offset=lease.offset,
            committed_at_ms=lease.committed_at_ms,
        )
    return None


def _may_go_back(lease: Lease, may_go_back: MayGoBack) -> bool:
    if isinstance(may_go_back, SeenCommit):
        return (lease.offset, lease.committed_at_ms) == (may_go_back.offset, may_go_back.committed_at_ms)
    return may_go_back


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset that a group has committed for one partition: it reads there next."""

    topic: TopicName
    partition: PartitionKey
    offset: Offset
    metadata: str
    committed_at_ms: int
    leader_epoch: int | None = None


def check_committed(committed: CommittedOffset) -> None:
    """Raise OFFSET_OUT_OF_RANGE for an offset that no log reaches, and INVALID_REQUEST for too long a metadata text.

    An offset may be ahead of the partition: a restored group, or one that is copied with its topic, begins so.
    """
    where = f"partition {committed.partition.partition} of topic {committed.topic}"
    if committed.offset > COMMIT_OFFSET_MAX:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {committed.offset} of {where}: {COMMIT_OFFSET_MAX} at most, nothing was committed",
        )
    size = len(committed.metadata.encode())
    if size > COMMIT_METADATA_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"metadata of {size} bytes with the offset of {where}: {COMMIT_METADATA_BYTES_MAX} at most",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """The leases that the member releases (`revoked`), those that it lacks (`wanted`), and the ones `tried` now.

    Each is sorted, but `tried` may start in the middle of `wanted`. It has `ACQUIRE_MAX` leases at most.
    """

    revoked: Sequence[PartitionKey]
    wanted: Sequence[PartitionKey]
    tried: Sequence[PartitionKey]

    @property
    def leaves_some_untried(self) -> bool:
        """True if the member wants more leases than one heartbeat may try."""
        return len(self.tried) < len(self.wanted)


def plan_leases(part: Collection[PartitionKey], owned: Collection[PartitionKey], sequence: int) -> LeasePlan:
    """The plan for a member that holds `owned`, and whose part of the target is `part`.

    Of too many wanted leases, each heartbeat (by its `sequence`) tries others. Otherwise an owner that is slow to
    release the first ones would hold up all of them.
    """
    actions = {key: LEASE_ACTIONS[key in part, key in owned] for key in [*part, *owned]}
    wanted = sorted(key for key, action in actions.items() if action is LeaseAction.ACQUIRE)
    start = sequence * ACQUIRE_MAX % len(wanted) if len(wanted) > ACQUIRE_MAX else 0
    return LeasePlan(
        revoked=sorted(key for key, action in actions.items() if action is LeaseAction.REVOKE),
        wanted=wanted,
        tried=(wanted[start:] + wanted[:start])[:ACQUIRE_MAX],
    )
