"""The records that iteration has taken from the buffer and returns one by one: of one partition, in offset order."""

from collections.abc import Collection

from penstock.consumer.fetch_buffer import FetchBuffer
from penstock.model import ConsumerRecord, TopicPartition
from penstock.telemetry.operations import Notes


class RecordRun:
    """If the run ends before its records are returned, they are read again from the first of them.

    `records[at]` comes next: iteration, which returns most records, looks there itself. `notes` get the records that
    were returned, and no other, because prefetched records count as received only when the application has them.
    """

    def __init__(self, buffer: FetchBuffer, notes: Notes | None = None) -> None:
        self._buffer = buffer
        self._notes = notes
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
        """Up to `max_records`, which count as returned."""
        taken = self.records[self.at : self.at + max_records]
        self.at += len(taken)
        return taken

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
