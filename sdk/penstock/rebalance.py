"""What a consumer does when its group gives and takes partitions: between records, in the application's own thread.

Only partitions of which nothing is in the application's hands are released without it (`release_idle`).

In this order: what is lost is dropped; what is revoked is committed, told, dropped, and the group is told that it is
free; what is granted is read from where the group is. All else is read on meanwhile.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from penstock.commits import Commits
from penstock.errors import as_sdk_error
from penstock.fetch_buffer import FetchBuffer
from penstock.heartbeat import Lease
from penstock.listener import ConsumerSteps, Listener, Notice, RebalanceCallback
from penstock.membership import Membership
from penstock.model import TopicPartition
from penstock_core.errors import PenstockError

_log = logging.getLogger("penstock.consumer")


class Rebalance:
    """Keeps a buffer's partitions those that the member owns. `positions` gives the offsets up to which records were
    handed out; `drop` stops reading partitions."""

    def __init__(
        self,
        membership: Membership,
        buffer: FetchBuffer,
        commits: Commits,
        listener: Listener,
        *,
        is_committing: bool,
        positions: Callable[[], Mapping[TopicPartition, int]],
        drop: Callable[[Iterable[TopicPartition]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.membership = membership
        self._buffer = buffer
        self._commits = commits
        self.listener = listener
        self._is_committing = is_committing
        self._positions = positions
        self._drop = drop
        self._now_ms = now_ms

    def follow(self) -> ConsumerSteps[None]:
        """Do what the group says. All that was handed out must have been dealt with.

        Raises InstanceFencedError, what heartbeats were refused with, and what callbacks raise; what they were told
        of has happened then.
        """
        membership = self.membership
        while membership.is_changed(self._now_ms()):
            yield from self._lose(membership.take_lost(self._now_ms()))
            error = membership.take_error()
            if error is not None:
                raise as_sdk_error(error)
            yield from self._hand_over(membership.to_revoke())
            yield from self._take_over(membership.take_granted())

    def release_idle(self, busy: TopicPartition | None) -> None:
        """Let go of revoked partitions between two polls, if all that was handed out of them is committed, and the
        application has no callback that it is to be told by before others have them. `busy` is being iterated over.

        What was prefetched is dropped: nobody has seen it, and whoever has the partition next reads it.
        """
        if self.membership.is_polling or self.listener.revoked is not None:
            return
        positions = self._positions()
        idle = [
            each
            for each in self.membership.to_revoke()
            if each != busy and each in positions and self._commits.is_committed(each, positions[each])
        ]
        if idle:
            self._commits.let_go(idle)
            self._drop(idle)
            self.membership.release(idle, self._now_ms())

    def leave(self) -> ConsumerSteps[None]:
        """Tell the application, and then the group, that the member wants nothing any more. What was to be committed
        is."""
        try:
            yield from self._tell_all()
        finally:
            self.membership.leave(self._now_ms())

    def end(self, *, is_leaving: bool) -> ConsumerSteps[None]:
        """As `leave`, for ever; or do not tell the group."""
        try:
            yield from self._tell_all()
        finally:
            self.membership.close(self._now_ms(), is_leaving=is_leaving)

    def _tell_all(self) -> ConsumerSteps[None]:
        yield from self._lose(self.membership.take_lost(self._now_ms()))
        yield from _tell(self.listener.revoked, sorted(self.membership.owned))

    def _lose(self, lost: list[TopicPartition]) -> ConsumerSteps[None]:
        if lost:
            _log.warning("lost %d partitions of the group, to be read on by others: %s", len(lost), lost[:10])
            self._drop(lost)
            yield from _tell(self.listener.lost, lost)

    def _hand_over(self, revoked: list[TopicPartition]) -> ConsumerSteps[None]:
        positions = self._positions()
        offsets = {each: positions[each] for each in revoked if each in positions}
        if self._is_committing:
            try:
                yield from self._commits.commit(offsets)
            except PenstockError as error:  # tried for long enough: others wait for the partitions
                _log.warning("handed over without a commit, so that the last records will come again: %s", error)
        try:
            yield from _tell(self.listener.revoked, revoked)
        finally:
            self._drop(revoked)
            self.membership.release(revoked, self._now_ms())

    def _take_over(self, granted: Mapping[TopicPartition, Lease]) -> ConsumerSteps[None]:
        if granted:
            self._buffer.assign([*self._buffer.assignment(), *granted])
            for partition, lease in granted.items():
                if lease.offset is not None:
                    self._buffer.seek(partition, lease.offset)
                    self._commits.know(partition, lease.offset)
            yield from _tell(self.listener.assigned, list(granted))


def _tell(callback: RebalanceCallback | None, partitions: list[TopicPartition]) -> ConsumerSteps[None]:
    if callback is not None and partitions:
        yield Notice(callback=callback, partitions=partitions)
