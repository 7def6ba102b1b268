"""The records that iteration has taken from the buffer and returns one by one: of one partition, in offset order.

A consumer raises at undecodable batches, skips them, or hands them to the application.

A value that it cannot decrypt or deserialize is a batch of one offset here.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection

from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.consumer.listener import ConsumerSteps, Notice
from penstock.consumer.partition_cursor import ExpirySkip
from penstock.consumer.settings import OnUndecodable
from penstock.errors import LookUpFirst
from penstock.model import ConsumerRecord, TopicPartition
from penstock.telemetry.operations import Notes
from penstock_core.errors import PenstockError
from penstock_core.records.undecodable import is_undecodable

_log = logging.getLogger("penstock.consumer")

LookUp = Callable[[], object]  # of a data key or a schema


class RecordRun:
    """If the run ends before its records are returned, they are read again from the first of them.

    `records[at]` comes next: iteration, which returns most records, looks there itself. `notes` get the records that
    were returned, and no other, because prefetched records count as received only when the application has them.
    """

    def __init__(self, buffer: FetchBuffer, notes: Notes | None = None, expiry: ExpirySkip | None = None) -> None:
        self._buffer = buffer
        self._notes = notes
        self._expiry = expiry
        self._noted = 0  # the records before it are noted
        self._times_ns = (0, 0)  # when the wait for these records began and ended
        self.records: list[ConsumerRecord] = []
        self.at = 0

    def fill(self, records: list[ConsumerRecord], started_ns: int = 0) -> None:
        """Go on with these records: the old ones are all returned. The wait for them began at `started_ns`."""
        self.note_returned()
        self.records = records
        self.at = self._noted = 0
        if self._notes is not None:
            self._times_ns = (started_ns, self._notes.now_ns())

    def peek(self) -> ConsumerRecord | None:
        """The record that comes next, if one is at hand."""
        return self.records[self.at] if self.at < len(self.records) else None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to `max_records`, which count as returned: none whose time has ended since the run has them."""
        if self._expiry is None:
            taken = self.records[self.at : self.at + max_records]
        else:
            taken, end = [], self.at
            while end < len(self.records) and len(taken) < max_records:
                if not self._is_over(self.records[end]):
                    taken.append(self.records[end])
                end += 1
            self.records[self.at : end] = taken
        self.at += len(taken)
        return taken

    def pass_expired(self) -> None:
        """Drop the records in front whose time has ended since the run has them: they count as no returned ones."""
        end = self.at
        while end < len(self.records) and self._is_over(self.records[end]):
            end += 1
        if end > self.at:
            del self.records[self.at : end]

    def _is_over(self, record: ConsumerRecord) -> bool:
        if self._expiry is None:
            return False
        return self._expiry.is_over(TopicPartition(record.topic, record.partition), record.offset, record.headers)

    def note_returned(self) -> None:
        """Note the records that were returned since the last note."""
        if self._notes is not None and self._noted < self.at:
            self._notes.received(self.records[self._noted : self.at], *self._times_ns)
            self._noted = self.at

    def mark_noted(self) -> None:
        """The caller has noted what was returned."""
        self._noted = self.at

    @property
    def partition(self) -> TopicPartition | None:
        """The partition of the records that are not returned yet."""
        record = self.peek()
        return None if record is None else TopicPartition(record.topic, record.partition)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to return, of each partition of the buffer where it is known."""
        positions = self._buffer.positions()
        record = self.peek()
        if record is not None:
            positions[TopicPartition(record.topic, record.partition)] = record.offset
        return positions

    def put_back(self, partition: TopicPartition | None = None) -> None:
        """Take back the records that are not returned, of one partition or any."""
        record, owner = self.peek(), self.partition
        if record is not None and owner is not None and partition in (None, owner):
            self._buffer.seek(owner, record.offset)
            self._end()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are read no more."""
        if self.partition in partitions:
            self._end()

    def _end(self) -> None:
        self.note_returned()
        self.records = []
        self.at = self._noted = 0


class Poison:
    """Carries out the setting `on_undecodable`. `passed_over` counts the batches by partition."""

    def __init__(self, policy: OnUndecodable, buffer: FetchBuffer, learn: Callable[[LookUp], object]) -> None:
        self._policy = policy
        self._learn = learn
        self._buffer = buffer
        self.passed_over: Counter[TopicPartition] = Counter()

    def take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int
    ) -> ConsumerSteps[list[ConsumerRecord] | None]:
        """The records of one of the buffer's take methods; None if it must be tried again.

        That is so when a batch was passed over, and when a data key or a schema was asked for.

        Raises the method's error by default, and what the application's function raises; then the batch comes again.
        """
        try:
            return take(max_records)
        except LookUpFirst as missing:
            look_up, learn = missing.look_up, self._learn
            yield Notice(callback=lambda _: learn(look_up), partitions=[])
        except PenstockError as error:
            yield from self._pass_over(error)
        return None

    def _pass_over(self, error: PenstockError) -> ConsumerSteps[None]:
        """Go on behind the batch. A seek or a rebalance while the application's function runs decides otherwise."""
        policy = self._policy
        if policy == "raise" or not is_undecodable(error):
            raise error
        partition = TopicPartition(error.facts["topic"], error.facts["partition"])
        cursor = self._buffer.cursor(partition)
        batch, generation = cursor.undecodable_batch(error), cursor.generation
        if callable(policy):
            call = policy
            yield Notice(callback=lambda _: call(batch), partitions=[partition])
            if partition not in self._buffer.assignment() or self._buffer.cursor(partition) is not cursor:
                return
            if cursor.generation != generation:
                return
        else:
            _log.warning("skipped %d offsets: %s", batch.next_offset - batch.offset, error)
        cursor.pass_over(batch)
        self._buffer.wake_at_ms = 0  # there is room again
        self.passed_over[partition] += 1
