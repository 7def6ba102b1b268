"""What a consumer does, without I/O, for threads and for asyncio: what to hand out, what to commit and when.

    subscriber.py: partitions and their starts -> fetch_buffer.py: prefetched -> record_run.py -> handed out
    rebalance.py: the group's share of them                                                     | commits.py

The driver calls everything here under one lock (an event loop needs none); procedures (steps.py) hold it between waits.

Invariants:
- Everything before a partition's position, and nothing else, has been handed out since the last seek: a procedure that
  is cancelled has handed out nothing.
- What is committed without being told which offsets is never ahead of the positions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from penstock import calls
from penstock.arguments import check_number, check_whole, checked_offsets, checked_partition, checked_partitions
from penstock.assignment import Assignment
from penstock.commit_policy import CommitPolicy
from penstock.commits import Commits
from penstock.errors import ClosedError
from penstock.fetch_buffer import FetchBuffer, FetchSettings
from penstock.heartbeat import MemberSettings
from penstock.listener import ConsumerSteps, Listener
from penstock.membership import Membership
from penstock.model import ConsumerRecord, TopicPartition
from penstock.rebalance import Rebalance
from penstock.record_run import RecordRun
from penstock.retry import NEVER_MS
from penstock.start_offsets import listed_offsets
from penstock.steps import Calls, Steps, Wait
from penstock.subscriber import Subscriber
from penstock.transaction_core import GroupOffset
from penstock_core.group import Subscription


class ConsumerCore:
    """A fetch buffer, what it is to hold, and the offsets. `now_ms` reads a monotonic clock.

    With `member`, which is given with a group, the group says which partitions of its topics it reads (heartbeats drive
    `membership`), else it reads all of them.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        group_id: str | None,
        member: MemberSettings | None,
        listener: Listener,
        is_at_most_once: bool,
        is_exactly_once: bool = False,
        commit_interval_ms: int | None,  # None: no commits but those asked for
        max_poll_records: int,
        timeout_ms: int | None,
        refresh_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.buffer = FetchBuffer(settings)
        self.is_closed = False
        self._is_over = False  # closed, and the application has been told
        self.group_id = group_id or ""
        self.membership = None if member is None else Membership(member)
        self._max_poll_records = max_poll_records
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._assignment = Assignment(
            self.buffer,
            group_id=group_id,
            offset_reset=settings.offset_reset,
            refresh_ms=refresh_ms,
            now_ms=now_ms,
        )
        self._commits = Commits(group_id, now_ms)
        self._run = RecordRun(self.buffer)
        self._policy = CommitPolicy(
            self._commits,
            self.buffer,
            self._run,
            is_at_most_once=is_at_most_once,
            is_exactly_once=is_exactly_once,
            interval_ms=commit_interval_ms,
            committed=self.release_idle,
            now_ms=now_ms,
        )
        self._rebalance: Rebalance | None = None
        if self.membership is not None:
            self._rebalance = Rebalance(
                self.membership,
                self.buffer,
                self._commits,
                listener,
                is_committing=commit_interval_ms is not None,
                positions=self._run.positions,
                drop=self._stop_reading,
                now_ms=now_ms,
            )
        self._subscriber = Subscriber(
            self.buffer, self._assignment, self._commits, self._rebalance, drop=self._stop_reading, now_ms=now_ms
        )

    # Reading.

    def poll(self, max_records: int | None, timeout_ms: int) -> ConsumerSteps[list[ConsumerRecord]]:
        """The next records, `max_poll_records` at most; empty if none came in `timeout_ms`. Partitions in turns."""
        if max_records is not None:
            check_number("max_records", max_records, 1)
        check_number("timeout_ms", timeout_ms, 0)
        with self._polling():
            yield from self._keep_up()
            max_records = max_records or self._max_poll_records
            taken = self._run.take(max_records)
            if not taken:
                taken = yield from self._take(self.buffer.take, max_records, self._now_ms() + timeout_ms)
            return taken

    def next_now(self) -> ConsumerRecord | None:
        """The next record, if it is at hand and there is nothing to do first; else `next_record`. Needs no lock."""
        run = self._run
        records, at = run.records, run.at
        if at >= len(records):
            return None
        if self.membership is not None:
            now_ms = self._now_ms()
            if now_ms >= self._policy.due_ms or self._is_rebalanced(now_ms):
                return None
            self.membership.polled(now_ms)
        run.at = at + 1
        return records[at]

    def next_record(self) -> ConsumerSteps[ConsumerRecord | None]:
        """The next record, waiting for it; None after `consumer_timeout_ms`."""
        with self._polling():
            yield from self._keep_up()
            if self._run.peek() is None:
                deadline_ms = NEVER_MS if self._timeout_ms is None else self._now_ms() + self._timeout_ms
                self._run.fill((yield from self._take(self.buffer.take_run, self._max_poll_records, deadline_ms)))
            return next(iter(self._run.take(1)), None)

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed to topics."""
        self._refuse_closed()
        assigned = checked_partitions(partitions)
        self._run.put_back()
        self._subscriber.assign(assigned)

    def subscribe(self, subscription: Subscription, listener: Listener | None = None) -> None:
        """Read these topics, and no others. Raises InvalidError while partitions are assigned by hand."""
        self._refuse_closed()
        self._subscriber.subscribe(subscription, listener)

    def subscription(self) -> list[str]:
        """The topics and patterns that are subscribed to, sorted."""
        return sorted([*self._subscriber.subscription.topics, *self._subscriber.subscription.patterns])

    def unsubscribe(self) -> ConsumerSteps[None]:
        """Read nothing: commit what was handed out, as `close` does, and let go of every partition."""
        self._refuse_closed()
        try:
            yield from self._policy.commit_last()
        finally:
            yield from self._subscriber.unsubscribe()

    def assignment(self) -> Steps[list[TopicPartition]]:
        """The partitions that are read, sorted."""
        yield from self._refresh()
        return sorted(self.buffer.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> Steps[None]:
        """Read on at an offset."""
        partition = checked_partition("partition", partition)
        check_whole("offset", offset, 0)
        yield from self._refresh()
        self._run.put_back(partition)
        self.buffer.seek(partition, offset)

    def seek_to(self, timestamp: str, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Read on at the "earliest" or "latest" offset of these partitions, or of all. One call per topic."""
        asked = checked_partitions(partitions) or (yield from self.assignment())
        for partition, offset in (yield from listed_offsets(asked, timestamp)).items():
            yield from self.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> Steps[None]:
        """Hand out no records of these partitions, or go on with them."""
        paused = checked_partitions(partitions)
        yield from self._refresh()
        for partition in paused:
            self._run.put_back(partition)
            self.buffer.pause(partition, is_paused)

    def paused(self) -> Steps[list[TopicPartition]]:
        """The partitions that are paused, sorted."""
        return [each for each in (yield from self.assignment()) if self.buffer.cursor(each).is_paused]

    # Offsets.

    def position(self, partition: TopicPartition) -> Steps[int]:
        """The offset of the next record to be handed out."""
        partition = checked_partition("partition", partition)
        yield from self._refresh()
        self.buffer.cursor(partition)
        yield from self._assignment.find_starts()
        self.buffer.cursor(partition)  # it may have been let go of meanwhile
        return self._run.positions()[partition]

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Calls[None]:
        """Commit the positions of everything handed out, or the given offsets; those that have changed."""
        yield from self._policy.commit(None if offsets is None else checked_offsets("offsets", offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """Offsets for a transaction to commit."""
        return self._commits.to_transact(checked_offsets("offsets", offsets))

    def committed(self, partition: TopicPartition) -> Calls[int | None]:
        """What the group has committed for a partition."""
        partition = checked_partition("partition", partition)
        found = yield from calls.committed_offsets(self._commits.group_id, partition.topic)
        committed = found.get(partition)
        return committed.offset if committed else None

    def release_idle(self) -> None:
        """Let go of what the group wants back and the application does not hold, without waiting for its next poll."""
        if self._rebalance is not None and not self.is_closed:
            self._rebalance.release_idle(self._run.partition)

    # The end.

    def close(self, *, is_committing: bool, is_leaving: bool) -> ConsumerSteps[None]:
        """Refuse to hand out more; commit what was handed out, if that is wished and auto commit is on; leave.

        The application's callbacks, which are told then, may still ask for positions and the like.
        """
        self.is_closed = True
        try:
            if is_committing:
                yield from self._policy.commit_last()
        finally:
            try:
                if self._rebalance is not None:
                    yield from self._rebalance.end(is_leaving=is_leaving)
            finally:
                self._is_over = True
                self._run.put_back()

    @contextmanager
    def _polling(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.membership is not None:
                self.membership.poll_ended(self._now_ms())

    def _keep_up(self) -> ConsumerSteps[None]:
        """What is due when all that was handed out has been dealt with."""
        self._refuse_closed()
        if self._rebalance is not None and self._subscriber.is_member:
            self._rebalance.membership.poll_began(self._now_ms())
            yield from self._rebalance.follow()
        if self._now_ms() >= self._policy.due_ms:
            yield from self._policy.commit_in_time()

    def _is_rebalanced(self, now_ms: int) -> bool:
        return self.membership is not None and self._subscriber.is_member and self.membership.is_changed(now_ms)

    def _take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int, deadline_ms: int
    ) -> ConsumerSteps[list[ConsumerRecord]]:
        """What one of the buffer's take methods gives; none if the time runs out."""
        session_end_ms, commit_due_ms = NEVER_MS, self._policy.due_ms
        while True:
            changes = self._subscriber.changes
            yield from self._refresh()
            if self._now_ms() >= commit_due_ms:
                commit_due_ms = NEVER_MS  # nothing is handed out meanwhile: once is enough, however short the interval
            yield from self._keep_up()
            yield from self._find_starts()
            if self.membership is not None:  # NEVER_MS while it is in no group
                session_end_ms = self.membership.session_end_ms
            until_ms = min(deadline_ms, self._assignment.refresh_due_ms, commit_due_ms, session_end_ms)
            while True:
                if self.is_closed:
                    raise ClosedError("the consumer was closed while it waited for records")
                now_ms = self._now_ms()
                if self._is_rebalanced(now_ms) or changes != self._subscriber.changes:
                    break
                taken = take(max_records)
                if taken and not (yield from self._policy.commit_first(taken)):
                    break
                if taken or now_ms >= deadline_ms:
                    return taken
                if now_ms >= until_ms:
                    break
                yield Wait(until_ms=until_ms)

    def _find_starts(self) -> Calls[None]:
        is_new = yield from self._assignment.find_starts()
        if is_new and self._subscriber.is_member and self._policy.is_automatic:
            # Whoever takes over goes on from here, and not from where a later end is then.
            yield from self._policy.commit_in_time()

    def _refresh(self) -> Calls[None]:
        if self._is_over:
            raise ClosedError("the consumer is closed")
        if not self.is_closed:
            yield from self._assignment.refresh()

    def _refuse_closed(self) -> None:
        if self.is_closed:
            raise ClosedError("the consumer is closed")

    def _stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._run.forget(gone)
        self.buffer.assign([each for each in self.buffer.assignment() if each not in gone])
        self._commits.forget(gone)
