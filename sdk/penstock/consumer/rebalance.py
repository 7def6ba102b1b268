"""The consumer's part in a rebalance: between records, in the application's own thread.

The order is this. Lost partitions are dropped. Revoked partitions are committed, told to the application, dropped, and
released to the group. Granted partitions are read from the group's offset. All other partitions are read on meanwhile.
Without the application only partitions are released of which it holds nothing (`release_idle`).

A partition whose topic was deleted is lost to the application at once. The member keeps its lease until the group has
seen the deletion too: the group would give the partition back otherwise.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from penstock.consumer.commits import Commits
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.listener import ConsumerSteps, Notice, RebalanceCallback, RebalanceCallbacks
from penstock.errors import as_sdk_error
from penstock.group.group_calls import HeldLease
from penstock.group.membership import Membership
from penstock.model import TopicPartition
from penstock_core.errors import PenstockError

_log = logging.getLogger("penstock.consumer")


class Rebalance:
    """Keeps the partitions of a fetch buffer those that the member owns. `stop_reading` takes partitions out of it."""

    def __init__(
        self,
        membership: Membership,
        buffer: FetchBuffer,
        commits: Commits,
        listener: RebalanceCallbacks,
        *,
        stop_reading: Callable[[Iterable[TopicPartition]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.membership = membership
        self._buffer = buffer
        self._commits = commits
        self.listener = listener
        self._stop_reading = stop_reading
        self._now_ms = now_ms
        self._gone: set[TopicPartition] = set()  # owned until the group takes them, and lost to the application

    def carry_out(self) -> ConsumerSteps[None]:
        """Do as the group says. The application must have dealt with all records that were returned.

        Raises InstanceFencedError, the error of a refused heartbeat, and the errors of callbacks. The change that a
        callback was told of has happened even if it raises.
        """
        membership = self.membership
        yield from self._lose_gone()
        while membership.is_changed(self._now_ms()):
            yield from self._lose(membership.take_lost(self._now_ms()))
            error = membership.take_error()
            if error is not None:
                raise as_sdk_error(error)
            yield from self._hand_over(membership.to_revoke())
            yield from self._take_over(membership.take_granted())

    def release_idle(self, busy: TopicPartition | None) -> None:
        """Release revoked partitions between two polls, if all that was returned of them is committed.

        It does nothing if the application has an `on_revoked`: it must be called first. `busy` is the partition that is
        iterated over. The prefetched records are dropped: the next owner reads them.
        """
        if self.membership.is_polling or self.listener.revoked is not None:
            return
        positions = self._commits.positions()
        idle = [
            each
            for each in self.membership.to_revoke()
            if each != busy and each in positions and self._commits.is_committed(each, positions[each])
        ]
        if idle:
            self._commits.release(idle)
            self._stop_reading(idle)
            self.membership.release(idle, self._now_ms())

    def leave(self) -> ConsumerSteps[None]:
        """Tell the application, then the group, that the member gives back all partitions.

        Call it after the last commit.
        """
        try:
            yield from self._tell_all()
        finally:
            self.membership.leave(self._now_ms())

    def end(self, *, is_leaving: bool) -> ConsumerSteps[None]:
        """As `leave`, for ever; or without telling the group."""
        try:
            yield from self._tell_all()
        finally:
            self.membership.close(self._now_ms(), is_leaving=is_leaving)

    def _tell_all(self) -> ConsumerSteps[None]:
        yield from self._lose_gone()
        yield from self._lose(self.membership.take_lost(self._now_ms()))
        yield from _tell(self.listener.revoked, sorted(self.membership.owned.keys() - self._gone))

    def _lose_gone(self) -> ConsumerSteps[None]:
        """A deleted topic is a lost lease. The group finds that out later, and takes the partitions away."""
        gone = sorted(self._buffer.gone & self.membership.owned.keys() - self._gone)
        self._buffer.gone.clear()
        if gone:
            _log.warning("lost %d partitions with their topics, which were deleted: %s", len(gone), gone[:10])
            self._gone |= {*gone}
            self._stop_reading(gone)
            yield from _tell(self.listener.lost, gone)

    def _lose(self, taken: list[TopicPartition]) -> ConsumerSteps[None]:
        lost = [each for each in taken if each not in self._gone]
        self._gone -= {*taken}
        if lost:
            _log.warning("lost %d partitions to other members of the group: %s", len(lost), lost[:10])
            self._stop_reading(lost)
            yield from _tell(self.listener.lost, lost)

    def _hand_over(self, revoked: list[TopicPartition]) -> ConsumerSteps[None]:
        positions = self._commits.positions()
        offsets = {each: positions[each] for each in revoked if each in positions}
        if self._commits.is_automatic:
            try:
                yield from self._commits.commit_offsets(offsets)
            except PenstockError as error:  # tried for long enough: other members wait for the partitions
                _log.warning("released without a commit, so the last records come again: %s", error)
        try:
            yield from _tell(self.listener.revoked, [each for each in revoked if each not in self._gone])
        finally:
            self._gone -= {*revoked}
            self._stop_reading(revoked)
            self.membership.release(revoked, self._now_ms())

    def _take_over(self, granted: Mapping[TopicPartition, HeldLease]) -> ConsumerSteps[None]:
        if granted:
            self._buffer.assign([*self._buffer.assignment(), *granted])
            for partition, lease in granted.items():
                self._buffer.lease(partition, lease.topic_id, is_late=lease.is_late)
                if lease.offset is not None:
                    self._buffer.seek(partition, lease.offset)
                    self._commits.mark_committed(partition, lease.offset)
            yield from _tell(self.listener.assigned, list(granted))


def _tell(callback: RebalanceCallback | None, partitions: list[TopicPartition]) -> ConsumerSteps[None]:
    if callback is not None and partitions:
        yield Notice(callback=callback, partitions=partitions)
