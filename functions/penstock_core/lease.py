"""Leases: who may use a partition for a group, and the tables of what a heartbeat and a commit may do with one.

A lease has an owner, an epoch that rises whenever the owner changes or is told anew, and the group's committed
offset. Whoever changes the owner does so on condition that the epoch is still the one they saw, so of two that try,
one does. A commit counts only for the owner and epoch that stand in the lease. Clocks decide nothing here. A lease's
first epoch is drawn (`next_epoch`): a group that is deleted and made again, or whose offsets expired, never gives out
an epoch that some sleeper still holds.

What a member's heartbeat does about a partition, by whether it is in the member's part of the target and whether the
member says that it holds it:

| in its target | held  |                                                                        |
|---------------|-------|------------------------------------------------------------------------|
| yes           | yes   | KEEP                                                                   |
| yes           | no    | ACQUIRE, if its lease lets it (below)                                  |
| no            | yes   | REVOKE: the member commits, lets go, and no longer names it as held    |
| no            | no    | LEAVE: its lease may still name the member, which nobody minds         |

Nobody writes a release. A member that holds nothing outside its part of the target of epoch E is *settled* at E, and
its own item says so; from then on, whoever has got its other partitions at E may take their leases over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import Member
from penstock_core.ids import MemberName, Offset, TopicName
from penstock_core.keys import PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease's item. `epoch` 0: nobody has ever owned it. `offset` None: nothing was ever committed."""

    topic: TopicName
    partition: PartitionKey
    owner: MemberName | None = None
    epoch: int = 0
    offset: Offset | None = None
    metadata: str = ""
    committed_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """What a member proves itself by when it commits: it owns the lease, of this epoch."""

    owner: MemberName
    epoch: int


class Claim(Enum):
    """What a heartbeat does about one partition."""

    KEEP = "keep"
    ACQUIRE = "acquire"
    REVOKE = "revoke"
    LEAVE = "leave"


CLAIMS: Mapping[tuple[bool, bool], Claim] = {  # (in its target, held)
    (True, True): Claim.KEEP,
    (True, False): Claim.ACQUIRE,
    (False, True): Claim.REVOKE,
    (False, False): Claim.LEAVE,
}


class Holder(Enum):
    """Who owns a lease, as a member sees it that works towards the target of some epoch E, which gives it the
    partition."""

    NOBODY = "nobody"
    SELF = "self"  # an answer was lost, or the member's process is a new one
    GONE = "gone"  # its session has ended: there is no member of that name
    SETTLED = "settled"  # at E: it holds nothing outside its part of the target, so not this partition
    UNSETTLED = "unsettled"  # it may hold the partition still
    AHEAD = "ahead"  # it knows a target newer than E, which may have given it the partition


class Attempt(Enum):
    """What may be done about a lease that a member wants."""

    TAKE = "take"
    WAIT = "wait"
    LOOK_AGAIN = "look again"  # at the group: there is a newer epoch


ATTEMPTS: Mapping[Holder, Attempt] = {
    Holder.NOBODY: Attempt.TAKE,
    Holder.SELF: Attempt.TAKE,
    Holder.GONE: Attempt.TAKE,
    Holder.SETTLED: Attempt.TAKE,
    Holder.UNSETTLED: Attempt.WAIT,
    Holder.AHEAD: Attempt.LOOK_AGAIN,
}


def next_epoch(seen: Lease, drawn: int) -> int:
    """The epoch after the one that was seen; for a lease that never had one, what was drawn (`ids.drawn_number`)."""
    return seen.epoch + 1 if seen.epoch else drawn


def holder_of(lease: Lease | None, taker: MemberName, epoch: int, members: Mapping[MemberName, Member]) -> Holder:
    """Who stands against `taker`, for whom the target of `epoch` has this lease.

    `members` are the owners' items, **read after the lease**: an owner that has acquired the lease at a newer epoch
    had said in its item before that it knows that epoch.
    """
    if lease is None or lease.owner is None:
        return Holder.NOBODY
    if lease.owner == taker:
        return Holder.SELF
    owner = members.get(lease.owner)
    if owner is None:
        return Holder.GONE
    if owner.epoch > epoch:
        return Holder.AHEAD
    return Holder.SETTLED if owner.epoch == epoch and owner.is_settled else Holder.UNSETTLED


def refusal(
    lease: Lease | None, key: PartitionKey, offset: Offset, tenure: Tenure | None, *, may_go_back: bool
) -> PenstockError | None:
    """Why a commit of `offset` does not count, or None if it does; `group_items.commit_update` is the same as a
    condition."""
    owner, epoch = (None, 0) if lease is None else (lease.owner, lease.epoch)
    if tenure is not None and (owner, epoch) != (tenure.owner, tenure.epoch):
        return PenstockError(
            ErrorCode.LEASE_FENCED,
            f"partition {key} is not this member's under lease epoch {tenure.epoch}: the lease has epoch {epoch} now. "
            "Nothing was committed: drop the partition, and report what is still held",
            lease_epoch=epoch,
        )
    if tenure is None and owner is not None:
        return PenstockError(
            ErrorCode.LEASE_HELD,
            f"partition {key} belongs to a member of the group: only that one commits for it, under its lease's epoch",
        )
    stored = None if lease is None else lease.offset
    if stored is not None and offset < stored and not may_go_back:
        return PenstockError(
            ErrorCode.OFFSET_BEHIND,
            f"offset {offset} of partition {key} is behind the committed {stored}: say may_go_back to read again",
            committed_offset=stored,
        )
    return None
