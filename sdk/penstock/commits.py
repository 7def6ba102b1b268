"""What a consumer commits: by itself, or as a member of its group, under the lease of each partition."""

from collections.abc import Callable, Iterable, Mapping

from penstock import calls
from penstock.errors import InvalidError, LeaseLostError
from penstock.group_calls import commit_leased
from penstock.membership import Membership
from penstock.model import TopicPartition
from penstock.steps import Calls
from penstock.transaction_core import GroupOffset
from penstock_core.errors import ErrorCode


class Commits:
    """Remembers what is committed, so that nothing is committed twice. Without a membership anybody's commit counts."""

    def __init__(self, group_id: str | None, now_ms: Callable[[], int]) -> None:
        self._group_id = group_id
        self.membership: Membership | None = None
        self._now_ms = now_ms
        self._committed: dict[TopicPartition, int] = {}
        self._let_go: dict[TopicPartition, int] = {}  # between two polls, with what was committed then

    @property
    def group_id(self) -> str:
        """The group. Raises InvalidError if there is none."""
        if self._group_id is None:
            raise InvalidError(ErrorCode.INVALID_REQUEST, "there are no commits without a group: give a group_id")
        return self._group_id

    def know(self, partition: TopicPartition, offset: int) -> None:
        """This is committed."""
        self._committed[partition] = offset
        self._let_go.pop(partition, None)

    def is_committed(self, partition: TopicPartition, offset: int) -> bool:
        """Whether this is what is known to be committed."""
        return self._committed.get(partition) == offset

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """They are the member's no more, and the application may not know yet: to commit the same again is no error."""
        self._let_go |= {each: self._committed[each] for each in partitions}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may commit for these."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Calls[None]:
        """Commit those that have changed, all that can be. Raises LeaseLostError, and what the service says."""
        changed = {
            each: offset
            for each, offset in offsets.items()
            if offset not in (self._committed.get(each), self._let_go.get(each))
        }
        if not changed:
            return
        if self.membership is not None:
            yield from self._commit_leased(self.membership, changed)
        else:
            yield from calls.commit_offsets(self.group_id, {each: (offset, "") for each, offset in changed.items()})
            self._committed |= changed

    def to_transact(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """Offsets for a transaction to commit, with what proves that they are this member's. Raises LeaseLostError."""
        group_id = self.group_id
        if self.membership is None:
            return [GroupOffset(group=group_id, partition=each, offset=offset) for each, offset in offsets.items()]
        member, owned = self.membership.settings, self.membership.owned
        self._refuse_lost(offsets.keys() - owned.keys())
        return [
            GroupOffset(
                group=group_id,
                partition=each,
                offset=offset,
                member_id=member.member_id,
                instance_id=member.instance_id,
                lease_epoch=owned[each].lease_epoch,
            )
            for each, offset in offsets.items()
        ]

    def _commit_leased(self, membership: Membership, changed: Mapping[TopicPartition, int]) -> Calls[None]:
        owned = dict(membership.owned)  # as it is now: what is granted anew meanwhile has another lease
        leased = {each: (offset, owned[each]) for each, offset in changed.items() if each in owned}
        group_id, member = self.group_id, membership.settings
        refused = yield from commit_leased(group_id, member, leased, may_go_back=False)
        # The lease is ours, so what is ahead is too: the application has gone back on purpose.
        behind = {each: leased[each] for each, error in refused.items() if error.code is ErrorCode.OFFSET_BEHIND}
        if behind:
            again = yield from commit_leased(group_id, member, behind, may_go_back=True)
            refused = {each: error for each, error in refused.items() if each not in behind} | again
        self._committed |= {each: offset for each, (offset, _) in leased.items() if each not in refused}
        for each, error in refused.items():
            if error.code is ErrorCode.LEASE_FENCED:
                membership.fenced(each, leased[each][1].lease_epoch, self._now_ms())
        for error in refused.values():
            raise error
        self._refuse_lost(changed.keys() - leased.keys())

    def _refuse_lost(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, partition in partitions:
            raise LeaseLostError(
                ErrorCode.LEASE_FENCED,
                f"{topic}[{partition}] is not this member's of group {self.group_id}, or no longer: nothing was "
                "committed for it, and whoever has it now goes on from the last commit",
            )
