"""The ports of leases and of memberships. `penstock_service.ports` says what all methods raise."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock_core.groups.group import GroupState, Member, SessionTouch
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack
from penstock_core.ids import GroupName, MemberName, PartitionKey, TopicId
from penstock_core.quotas.quota import GroupClaim


class GroupStore(Protocol):
    """Leases of groups, and the offsets committed under them. Reads are consistent."""

    def commit(
        self,
        group: GroupName,
        committed: CommittedOffset,
        token: LeaseToken | None,
        may_go_back: MayGoBack,
        may_create: bool,
    ) -> None:
        """Commits an offset as the lease's owner, or without a token while the lease has no owner.

        Raises LEASE_FENCED if the token is not the lease's, LEASE_HELD if there is no token but an owner, UNKNOWN_GROUP
        if there is no lease and none may be made, and OFFSET_BEHIND if the offset would go back and may not.
        `penstock_core.groups.lease.refusal` is the rule. One conditional update, never repeated once it may have been
        applied.
        """

    def leases(self, group: GroupName) -> Sequence[Lease]:
        """All of the group's leases, in no order. One query for each MB."""

    def lease_page(
        self, group: GroupName, topic_id: TopicId | None, after: str, limit: int
    ) -> tuple[Sequence[Lease], bool]:
        """At most `limit` leases on a topic, or on all (None), and whether there may be more. One query.

        They come in the order of `str(lease.partition)`, as text, and from behind `after`.
        """

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        """The leases of these partitions. A partition that has none is missing. One call for each 100."""

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        """Gives the lease to `owner` under `epoch`, its next epoch, and returns the lease after that.

        Raises CONCURRENT_UPDATE unless the lease still has the epoch of `seen`. One conditional update, never repeated
        once it may have been applied: so at most one caller learns of each epoch.
        """

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        """Sets the offset, and leaves the lease without owner under `epoch`, its next epoch.

        Raises CONCURRENT_UPDATE unless the lease still has the epoch of `seen`. One conditional update.
        """

    def release_lease(self, group: GroupName, seen: Lease, epoch: int) -> None:
        """Leaves the lease without owner under `epoch`, its next epoch, and its offset as it is.

        Raises CONCURRENT_UPDATE unless the lease still has the epoch of `seen`. One conditional update.
        """

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        """Removes the lease with its offset. False if a member has acquired it, or a commit was made, since `seen`.

        One conditional delete.
        """


class MembershipStore(Protocol):
    """Groups, their members and their target assignments. Reads are consistent."""

    def get_group(self, group: GroupName) -> GroupState | None:
        """The group, or None if there is none. One read."""

    def find_groups(self, groups: Sequence[GroupName]) -> Mapping[GroupName, GroupState]:
        """The groups of these names. A group that does not exist is missing. One call for each 100."""

    def change_group(self, old: GroupState | None, new: GroupState) -> None:
        """Stores `new` in place of `old`, which is None if there is no group yet.

        Raises CONCURRENT_UPDATE unless the stored version is still the one of `old`. One conditional write.
        """

    def delete_group(self, seen: GroupState) -> None:
        """Removes the group. Raises CONCURRENT_UPDATE if it has changed since `seen`. One conditional delete."""

    def register(self, group: GroupName, claim: GroupClaim | None = None) -> GroupClaim | None:
        """Puts the group's name on the list that `registered` reads, and gives the claim that it has there.

        A listed group keeps the claim that it has. Else it gets this one. One update, never repeated once it may have
        been applied.
        """

    def unregister(self, group: GroupName) -> GroupClaim | None:
        """Takes the group's name off the list, and gives its claim, None if it had none.

        One delete, never repeated once it may have been applied.
        """

    def is_registered(self, group: GroupName, claim_id: str = "") -> bool:
        """True if the group's name is listed, with an id: under this claim. One read."""

    def is_claimed(self, group: GroupName) -> bool:
        """True if the group's name is listed under a claim. One read."""

    def registered(self, after: str, limit: int) -> Sequence[GroupName]:
        """At most `limit` listed names that come after `after`, sorted. One query."""

    def members(self, group: GroupName) -> Sequence[Member]:
        """All members, in order of their names. One query for each MB."""

    def find_members(self, group: GroupName, names: Sequence[MemberName]) -> Mapping[MemberName, Member]:
        """The members of these names. A member that does not exist is missing. One call for each 100."""

    def put_member(self, group: GroupName, old: Member | None, new: Member) -> None:
        """Stores `new` in place of `old`, which is None if there is no such member.

        Raises CONCURRENT_UPDATE unless the stored member has the process, sequence and deadline of `old`. One
        conditional write.
        """

    def touch_member(self, group: GroupName, name: MemberName, touch: SessionTouch) -> Member:
        """Notes a heartbeat, and returns the member after it.

        Raises UNKNOWN_MEMBER if there is no such member or its session is another one, MEMBER_FENCED if another process
        is the member, and STALE_HEARTBEAT if this sequence or a higher one has come.
        `penstock_core.groups.group.touched` is the rule. One conditional update.
        """

    def remove_member(self, group: GroupName, seen: Member) -> bool:
        """Removes the member. False if a heartbeat or another process has come since `seen`. One conditional delete."""

    def put_target(self, group: GroupName, epoch: int, target_id: str, chunks: Sequence[bytes]) -> None:
        """Stores the chunks of the target that `epoch` is to have, under `target_id`. One put for each chunk."""

    def get_target(self, group: GroupName, epoch: int, target_id: str) -> Sequence[bytes]:
        """The chunks of the target in order, none if it was removed. One query for each MB."""

    def remove_targets(self, group: GroupName, below_epoch: int) -> None:
        """Removes every target of an epoch below `below_epoch`. One query for each MB, one delete for each chunk."""
