"""The consumer without I/O, for threads and for asyncio: the records that it returns, and its commits.

    subscriber.py: partitions and their starts -> fetch_buffer.py: prefetched -> record_run.py -> returned
    rebalance.py: the group's share of them                                                     | commits.py

The driver calls everything here under one lock; an event loop needs none. Procedures (steps.py) hold it between waits.

Invariants:

- Since the last seek the consumer has returned exactly the records before a partition's position. A procedure that is
  cancelled has returned nothing.
- A commit without given offsets is never ahead of the positions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.api import calls
from penstock.arguments import check, check_number, check_whole, checked_offsets, checked_partition, checked_partitions
from penstock.consumer.commits import Commits
from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.listener import ConsumerRebalanceListener, ConsumerSteps, RebalanceCallbacks
from penstock.consumer.partition_cursor import ExpirySkip
from penstock.consumer.rebalance import Rebalance
from penstock.consumer.record_run import LookUp, Poison, RecordRun
from penstock.consumer.settings import ConsumerSettings
from penstock.consumer.subscriber import Subscriber
from penstock.errors import ClosedError
from penstock.group.membership import Membership
from penstock.http.named_transport import offset_within
from penstock.http.steps import Calls, Steps, Wait
from penstock.model import ConsumerRecord, GroupOffset, TopicPartition
from penstock.retry import NEVER_MS
from penstock.system import NS_PER_MS, wall_clock_ns
from penstock.telemetry.operations import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The reading of a core: topics and patterns by `names`, or partitions that the application `assigned`."""

    names: Sequence[str]
    listener: RebalanceCallbacks | None
    is_member: bool
    assigned: Sequence[TopicPartition]
    positions: Mapping[TopicPartition, int]
    paused: Sequence[TopicPartition]


class ConsumerCore:
    """A fetch buffer, the partitions that it is to hold, and the offsets. `now_ms` reads a monotonic clock.

    `wall_ns` reads nanoseconds since 1970: `skip_expired` goes by it. `expiry` is None without that setting.

    `learn` carries out a look-up of a data key or a schema. The driver awaits the result if it can be.

    With a group there is a `membership`, which heartbeats drive: the group says which partitions are read. Without a
    group the consumer reads all partitions of its topics.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        *,
        member_id: str,
        process_name: str,
        now_ms: Callable[[], int],
        notes: Notes | None = None,
        learn: Callable[[LookUp], object] = lambda look_up: look_up(),
        wall_ns: Callable[[], int] = wall_clock_ns,
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self.group_id = settings.group_id or ""
        self.is_closed = False
        self.is_stopped = False  # the application wants no more records
        self._is_over = False  # closed, and the application has heard of it
        self.expiry = ExpirySkip(lambda: wall_ns() // NS_PER_MS) if settings.skip_expired else None
        self.buffer = FetchBuffer(settings.fetch(), self.expiry)
        self.poison = Poison(settings.on_undecodable, self.buffer, learn)
        self.notes = notes
        self._run = RecordRun(self.buffer, notes, self.expiry)
        self._commits = Commits(
            settings, self.buffer, self._run, after_commit=self.release_idle, now_ms=now_ms, notes=notes
        )
        member = settings.member(member_id, process_name)
        self.membership = None if member is None else Membership(member, self.buffer)
        self._rebalance: Rebalance | None = None
        if self.membership is not None:
            self._rebalance = Rebalance(
                self.membership,
                self.buffer,
                self._commits,
                settings.listener,
                stop_reading=self._stop_reading,
                now_ms=now_ms,
            )
        self._subscriber = Subscriber(
            settings,
            self.buffer,
            self._commits,
            self._rebalance,
            stop_reading=self._stop_reading,
            now_ms=now_ms,
        )

    # Reading.

    def poll(self, max_records: int | None, timeout_ms: int) -> ConsumerSteps[list[ConsumerRecord]]:
        """The next records, `max_poll_records` at most; empty if none came in `timeout_ms`. Partitions take turns."""
        if max_records is not None:
            check_number("max_records", max_records, 1)
        check_number("timeout_ms", timeout_ms, 0)
        if self.is_stopped:
            self._refuse_closed()
            return []
        with self._polling():
            started_ns = self._now_ns()
            yield from self._keep_up()
            max_records = max_records or self._settings.max_poll_records
            taken = self._run.take(max_records)
            if not taken:
                taken = yield from self._take(self.buffer.take, max_records, self._now_ms() + timeout_ms)
                self._handed_out(taken)
                self._note_poll(taken, started_ns)
            return taken

    def next_now(self) -> ConsumerRecord | None:
        """The next record, if it is at hand and nothing is due first; else None: call `next_record`. Needs no lock."""
        run = self._run
        if self.expiry is not None:
            run.pass_expired()
        records, at = run.records, run.at
        if at >= len(records) or self.is_stopped:
            return None
        if self.membership is not None:
            now_ms = self._now_ms()
            if now_ms >= self._commits.due_ms or self._is_rebalanced(now_ms):
                return None
            self.membership.polled(now_ms)
        run.at = at + 1
        return records[at]

    def next_record(self) -> ConsumerSteps[ConsumerRecord | None]:
        """The next record. Waits for it; None after `consumer_timeout_ms`, and once the consumer is stopped."""
        if self.is_stopped:
            self._refuse_closed()
            return None
        with self._polling():
            started_ns = self._now_ns()
            yield from self._keep_up()
            if self.expiry is not None:
                self._run.pass_expired()
            if self._run.peek() is None:
                timeout_ms = self._settings.consumer_timeout_ms
                deadline_ms = NEVER_MS if timeout_ms is None else self._now_ms() + timeout_ms
                taken = yield from self._take(self.buffer.take_run, self._settings.max_poll_records, deadline_ms)
                self._handed_out(taken)
                self._run.fill(taken, started_ns)
            return next(iter(self._run.take(1)), None)

    def note_returned(self) -> None:
        """From the thread that reads: note the records that iteration has returned."""
        self._run.note_returned()

    def report(self) -> None:
        """Without the lock: report what was noted."""
        if self.notes is not None:
            self.notes.report()

    # Topics and partitions.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed to topics."""
        self._refuse_closed()
        assigned = checked_partitions(partitions)
        self._run.put_back()
        self._subscriber.assign(assigned)

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Read these topics, and no others. Raises InvalidError for a bad name, and while partitions are assigned."""
        self._refuse_closed()
        self._subscriber.subscribe(topics, listener)

    def subscription(self) -> list[str]:
        """The topics and patterns of the subscription, sorted."""
        return sorted([*self._subscriber.subscription.topics, *self._subscriber.subscription.patterns])

    def unsubscribe(self) -> ConsumerSteps[None]:
        """Read nothing: commit as `close` does, and release every partition."""
        self._refuse_closed()
        try:
            yield from self._commits.commit_at_end()
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
        self.buffer.moved(partition)

    def seek_to(self, timestamp: str, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Read on at the "earliest" or "latest" offset of these partitions, or of all. One call per topic."""
        asked = checked_partitions(partitions) or (yield from self.assignment())
        for partition, offset in (yield from calls.listed_offsets(asked, timestamp)).items():
            yield from self.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> Steps[None]:
        """Return no records of these partitions, or go on with them."""
        paused = checked_partitions(partitions)
        yield from self._refresh()
        for partition in paused:
            self._run.put_back(partition)
            self.buffer.pause(partition, is_paused)

    def paused(self) -> Steps[list[TopicPartition]]:
        """The partitions that are paused, sorted."""
        return [each for each in (yield from self.assignment()) if self.buffer.cursor(each).is_paused]

    def topics(self) -> list[str]:
        """The topics that are read, sorted: those of patterns as well, once the group has given some."""
        names = {*self._subscriber.subscription.topics, *(each.topic for each in self.buffer.assignment())}
        return sorted(names)

    def reading(self) -> "Reading":
        """The reading, with which another core can go on."""
        return Reading(
            names=self.subscription(),
            listener=None if self._rebalance is None else self._rebalance.listener,
            is_member=self._subscriber.is_member,
            assigned=sorted(self.buffer.assignment()),
            positions=self._run.positions(),
            paused=[each for each in self.buffer.assignment() if self.buffer.cursor(each).is_paused],
        )

    def read_on(self, reading: "Reading", ends: Mapping[TopicPartition, int | None]) -> None:
        """Read at another stage what the other core has read. No member of a group goes on where it was.

        `ends` has the partitions there, and where a promotion ended their logs: no place is behind that. It makes no
        call, so no failure comes between the reading and its places.
        """
        if reading.names:
            self.subscribe(reading.names)
        else:
            self.assign(reading.assigned)
        if self._rebalance is not None and reading.listener is not None:
            self._rebalance.listener = reading.listener
        if reading.is_member:
            return
        self.buffer.assign(each for each in reading.assigned if each in ends or not reading.names)
        for partition in self.buffer.assignment():
            if partition in reading.positions:
                self.buffer.seek(partition, offset_within(reading.positions[partition], ends.get(partition)))
                self.buffer.moved(partition)
            self.buffer.pause(partition, partition in reading.paused)

    # Offsets.

    def position(self, partition: TopicPartition) -> Steps[int]:
        """The offset of the next record to return."""
        partition = checked_partition("partition", partition)
        yield from self._refresh()
        self.buffer.cursor(partition)
        yield from self._subscriber.find_starts()
        self.buffer.cursor(partition)  # it may have been released meanwhile
        return self._run.positions()[partition]

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> Calls[None]:
        """Commit the positions of all records that were returned, or the given offsets; those that have changed."""
        yield from self._commits.commit(None if offsets is None else checked_offsets("offsets", offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """Offsets for a transaction to commit."""
        return self._commits.transaction_offsets(checked_offsets("offsets", offsets))

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A transaction has committed these offsets."""
        self._commits.passed.settled(offsets)

    def committed(self, partition: TopicPartition) -> Calls[int | None]:
        """The offset that the group has committed for a partition; None if there is none."""
        partition = checked_partition("partition", partition)
        found = yield from calls.committed_offsets(self._commits.group_id, partition.topic)
        committed = found.get(partition)
        if committed is None:
            return None
        self._commits.passed.settled({partition: committed.offset})
        return committed.offset

    def release_idle(self) -> None:
        """Release revoked partitions of which the application holds nothing, before its next poll."""
        if self._rebalance is not None and not self.is_closed:
            self._rebalance.release_idle(self._run.partition)

    # The end.

    def close(self, *, is_committing: bool, is_leaving: bool) -> ConsumerSteps[None]:
        """Return no more records, commit with auto commit if `is_committing`, and leave the group if `is_leaving`.

        It calls the application's callbacks. They may still ask for positions, the assignment and committed offsets.
        """
        self.is_closed = True
        try:
            if is_committing:
                yield from self._commits.commit_at_end()
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
        """Do what is due when the application has dealt with all records that were returned."""
        self._refuse_closed()
        check(
            self._subscriber.changes > 0,
            "the consumer reads no topic: give it topics, or subscribe() or assign() first",
        )
        if self._rebalance is not None and self._subscriber.is_member:
            self._rebalance.membership.poll_began(self._now_ms())
            yield from self._rebalance.carry_out()
        if self._now_ms() >= self._commits.due_ms:
            yield from self._commits.commit_due()
        if self._subscriber.is_member and self._now_ms() >= self._commits.passed.due_ms:
            yield from self._commits.commit_passed()

    def _is_rebalanced(self, now_ms: int) -> bool:
        return self.membership is not None and self._subscriber.is_member and self.membership.is_changed(now_ms)

    def _take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int, deadline_ms: int
    ) -> ConsumerSteps[list[ConsumerRecord]]:
        """The records of one of the buffer's take methods; none if the time runs out."""
        commit_due_ms = self._commits.due_ms
        while True:
            changes = self._subscriber.changes
            yield from self._refresh()
            if self._now_ms() >= commit_due_ms:
                commit_due_ms = NEVER_MS  # one commit is enough: nothing is returned meanwhile
            yield from self._keep_up()
            yield from self._find_starts()
            until_ms = min(deadline_ms, self._subscriber.refresh_due_ms, commit_due_ms, self._member_due_ms())
            while True:
                if self.is_closed:
                    raise ClosedError("the consumer was closed while it waited for records")
                now_ms = self._now_ms()
                if self._is_rebalanced(now_ms) or self.buffer.gone or changes != self._subscriber.changes:
                    break
                taken = yield from self.poison.take(take, max_records)
                if taken is None:
                    continue
                if taken and not (yield from self._commits.commit_before_return(taken)):
                    break
                if taken or self.is_stopped or now_ms >= deadline_ms:
                    return taken
                if now_ms >= until_ms or self.buffer.without_position():  # a topic was made anew
                    break
                has_called = yield from self._subscriber.warn_of_unknown_topics()
                looks_again = has_called or self.buffer.is_skipping  # after a call, and while records are skipped
                yield Wait(until_ms=now_ms if looks_again else until_ms)

    def _handed_out(self, records: Sequence[ConsumerRecord]) -> None:
        if records and self.membership is not None:
            self.membership.handed_out(self._now_ms())

    def _now_ns(self) -> int:
        """The time at which a wait for records begins, for their span."""
        return 0 if self.notes is None else self.notes.now_ns()

    def _note_poll(self, records: Sequence[ConsumerRecord], started_ns: int) -> None:
        if self.notes is not None:
            self.notes.received(records, started_ns, self.notes.now_ns())
            self._run.mark_noted()

    def _member_due_ms(self) -> int:
        """When the session of a member ends, or when it looks again for offsets that it has passed."""
        if self.membership is None:
            return NEVER_MS
        passed_due_ms = self._commits.passed.due_ms if self._subscriber.is_member else NEVER_MS
        return min(self.membership.session_end_ms, passed_due_ms)

    def _find_starts(self) -> Calls[None]:
        yield from self._subscriber.find_starts()

    def _refresh(self) -> Calls[None]:
        if self._is_over:
            raise ClosedError("the consumer is closed")
        if not self.is_closed:
            yield from self._subscriber.refresh()

    def _refuse_closed(self) -> None:
        if self.is_closed:
            raise ClosedError("the consumer is closed")

    def _stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self._run.forget(gone)
        self.buffer.assign([each for each in self.buffer.assignment() if each not in gone])
        self._commits.forget(gone)
