"""Commit a group's offsets: by the members that own the partitions, or, where no member does, by anybody.

A simple consumer, which no group assigns its partitions to, commits without a member. It is refused while a living
member owns the lease; of one that is gone it takes the lease away, so that it cannot come back and commit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import (
    EPOCH_BYTES,
    GroupName,
    MemberName,
    Offset,
    drawn_number,
    member_name,
    parse_group_name,
)
from penstock_core.items import CommittedOffset
from penstock_core.lease import Holder, Lease, Tenure, holder_of, next_epoch
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, COMMIT_OFFSETS_MAX

_NO_MEMBER = MemberName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """`offset` is the one to read next, in `[0, OFFSET_MAX]`. `lease_epoch` is that of the member's lease; a member
    says `may_go_back` to commit an offset below the committed one."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    lease_epoch: int | None = None
    may_go_back: bool = False


def commit_offsets(
    broker: Broker,
    group_name: str,
    entries: Sequence[CommitEntry],
    member_id: str | None = None,
    instance_id: str | None = None,
) -> list[PenstockError | None]:
    """None per entry that is committed, else why not, in order. One conditional update per entry; without a member also
    one read per topic.

    An entry is refused with LEASE_FENCED if it is not the member's lease, with LEASE_HELD if it has an owner and the
    commit no member, with OFFSET_BEHIND. Raises INVALID_NAME, and INVALID_REQUEST for too many entries or a
    topic-partition that stands twice.
    """
    group = parse_group_name(group_name)
    _check_entries(entries)
    if member_id is not None:
        owner = member_name(member_id, instance_id)
        return broker.parallel.map(lambda entry: _commit_as_owner(broker, group, owner, entry), entries)
    if instance_id is not None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "a commit with an instance id names its member id too")
    broker.group_directory.register(group)
    # What is remembered will not do: a commit under the id of a deleted topic would be lost.
    names = list(dict.fromkeys(entry.topic for entry in entries))
    topics = dict(zip(names, broker.parallel.map(broker.directory.look_up, names), strict=True))

    def commit_one(entry: CommitEntry) -> None:
        found = topics[entry.topic]
        if isinstance(found, PenstockError):
            raise found
        if entry.lease_epoch is not None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, "a commit with lease epochs names its member id")
        committed = _committed(broker, entry)
        try:
            broker.groups.commit(group, committed, None, True)
        except PenstockError as error:
            if error.code is not ErrorCode.LEASE_HELD:
                raise
            lease = _abandoned(broker, group, committed)
            if lease is None:
                raise
            epoch = next_epoch(lease, drawn_number(broker.chance.random_bytes(EPOCH_BYTES)))
            broker.groups.reset_lease(group, lease, committed, epoch)

    return broker.parallel.map(commit_one, entries)


def _commit_as_owner(broker: Broker, group: GroupName, owner: MemberName, entry: CommitEntry) -> None:
    """The topic's id may be remembered: under that of a deleted topic the member has a lease, or is fenced."""
    if entry.lease_epoch is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a member's commit for partition {entry.partition} of topic {entry.topic!r:.100} names its lease_epoch",
        )
    tenure = Tenure(owner=owner, epoch=entry.lease_epoch)
    broker.groups.commit(group, _committed(broker, entry), tenure, entry.may_go_back)


def _committed(broker: Broker, entry: CommitEntry) -> CommittedOffset:
    topic, key = broker.directory.find_partition(entry.topic, entry.partition)
    size = len(entry.metadata.encode())
    if size > COMMIT_METADATA_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"metadata of {size} bytes with the offset of partition {entry.partition} of topic {entry.topic!r}: "
            f"{COMMIT_METADATA_BYTES_MAX} at most",
        )
    return CommittedOffset(
        topic=topic.name,
        partition=key,
        offset=Offset(entry.offset),
        metadata=entry.metadata,
        committed_at_ms=broker.clock.now_ms(),
    )


def _abandoned(broker: Broker, group: GroupName, committed: CommittedOffset) -> Lease | None:
    """The lease, if its owner is gone, or holds it no more; None if it may. A session that is over is ended first."""
    lease = broker.groups.find_leases(group, [committed.partition]).get(committed.partition)
    if lease is None or lease.owner is None:
        return lease
    state = broker.memberships.get_group(group)
    members = broker.memberships.find_members(group, [lease.owner])
    owner = members.get(lease.owner)
    if owner is not None and owner.deadline_ms < broker.clock.now_ms():
        return lease if broker.memberships.remove_member(group, owner) else None
    holder = holder_of(lease, _NO_MEMBER, state.epoch if state else 0, members)
    if holder is Holder.GONE:
        return lease
    if holder is Holder.SETTLED and state is not None:
        target = broker.group_directory.target_of(state)
        return lease if target is not None and target.owner_of(lease.partition) != lease.owner else None
    return None


def _check_entries(entries: Sequence[CommitEntry]) -> None:
    if len(entries) > COMMIT_OFFSETS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{len(entries)} offsets in one commit: send {COMMIT_OFFSETS_MAX} at most"
        )
    for (topic_name, partition), count in Counter((entry.topic, entry.partition) for entry in entries).items():
        if count > 1:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of topic {topic_name!r} stands {count} times in one commit: send its last one",
            )
