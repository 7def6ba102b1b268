"""One partition as a consumer reads it: where it is, what is prefetched, what went wrong.

log:  ... handed out | prefetched, as stored: decoded when it is taken | not fetched yet ...
                  position                                        fetch_offset
"""

from collections import deque
from collections.abc import Iterator
from itertools import dropwhile, islice

from penstock.errors import as_sdk_error
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.errors import PenstockError
from penstock_core.records import Record, decode


class PartitionCursor:
    """State of one assigned partition. `position` None: not known yet; nothing is fetched then.

    `generation` tells answers to requests from before a seek apart.
    """

    __slots__ = (
        "_answers",
        "_records",
        "buffered_bytes",
        "error",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_in_flight",
        "is_paused",
        "is_quiet",
        "log_start_offset",
        "partition",
        "position",
        "retry_at_ms",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.generation = 0
        self.is_paused = False
        self.is_quiet = False  # the last answer was empty
        self.retry_at_ms = 0
        self.failures = 0
        self.log_start_offset: int | None = None
        self.high_watermark: int | None = None
        self.fetch_offset = 0
        self.is_in_flight = False
        self.error: PenstockError | None = None
        self.buffered_bytes = 0
        self._answers: deque[tuple[memoryview, int]] = deque()
        self._records: Iterator[Record] | None = None  # what is left of the oldest answer

    @property
    def is_behind(self) -> bool:
        """Whether more is known to be in the log than was fetched."""
        return self.high_watermark is not None and self.fetch_offset < self.high_watermark

    @property
    def has_records(self) -> bool:
        """Whether something is prefetched."""
        return bool(self._answers)

    def seek(self, offset: int | None) -> None:
        """Go on at `offset`: what is prefetched or in flight for another is dropped."""
        self.generation += 1
        self.retry_at_ms = 0
        self.position = offset
        self.fetch_offset = offset or 0
        self.is_in_flight = False
        self.is_quiet = False
        self.error = None
        self.buffered_bytes = 0
        self._answers.clear()
        self._records = None

    def drop_prefetched(self) -> None:
        """Give the memory back; it is fetched again when it is wanted."""
        self.seek(self.position)

    def add(self, data: memoryview, next_offset: int) -> None:
        """Take an answer's batches, and the offset at which the next fetch goes on."""
        self.fetch_offset = next_offset
        if len(data):
            self._answers.append((data, next_offset))
            self.buffered_bytes += len(data)
        elif not self.has_records:
            self.position = next_offset  # there is nothing below it any more

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to `max_records` of the oldest answer, decoded as far as they reach; none only if nothing is prefetched.

        Raises CorruptError, once what is before the bad batch is handed out; the answer is dropped then, so that the
        batch is read again, perhaps from another copy.
        """
        taken: list[ConsumerRecord] = []
        while self._answers and not taken:
            data, next_offset = self._answers[0]
            if self._records is None:
                self._records = _from_offset(self.position or 0, decode(data))
            try:
                self._decode(max_records, taken)
            except PenstockError as error:
                self.seek(taken[-1].offset + 1 if taken else self.position)
                if not taken:
                    raise as_sdk_error(error) from error
                return taken
            if len(taken) == max_records:
                self.position = taken[-1].offset + 1
            else:
                self._records = None
                self._answers.popleft()
                self.buffered_bytes -= len(data)
                self.position = next_offset
        return taken

    def _decode(self, max_records: int, taken: list[ConsumerRecord]) -> None:
        assert self._records is not None
        topic, partition = self.partition
        make, append = tuple.__new__, taken.append  # tuple's own: ConsumerRecord(...) costs twice as much
        for record in islice(self._records, max_records):
            headers = tuple(record.headers)
            fields = (topic, partition, record.offset, record.timestamp, record.key, record.value, headers)
            append(make(ConsumerRecord, fields))


def _from_offset(offset: int, records: Iterator[Record]) -> Iterator[Record]:
    """The first batch of an answer may start below what was asked for."""
    return dropwhile(lambda record: record.offset < offset, records)
