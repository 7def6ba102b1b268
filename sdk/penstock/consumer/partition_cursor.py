"""One partition as a consumer reads it: its position, its prefetched answers, its last error.

log:  ... returned | prefetched, as stored: decoded when it is taken | not fetched yet ...
              position                                        fetch_offset
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any

from penstock.errors import LookUpFirst, UnavailableError, as_sdk_error
from penstock.model import ConsumerRecord, Headers, TopicPartition, UndecodableBatch
from penstock.retry import NEVER_MS
from penstock.schemas.serialization import Reading
from penstock_core.errors import Category, PenstockError
from penstock_core.records.codec import Record, decode
from penstock_core.records.expiry import is_expired
from penstock_core.records.record_batch import walk
from penstock_core.records.undecodable import in_partition, is_undecodable

_HEADER_OBJECT_BYTES = 100  # what a record's header takes as an object, without its value


@dataclass(slots=True)
class _Answer:
    """A prefetched answer: the batches from the one that is decoded on, and the offset behind all of them."""

    batches: memoryview
    next_offset: int
    stored_bytes: int

    def seek(self, base_offset: int) -> None:
        """Drop the batches before that one."""
        for position, header in walk(self.batches):
            if header.base_offset >= base_offset:
                self.batches = self.batches[position:]
                return


class Budget:
    """What one poll may still return: records, and bytes of them in memory. The first record is always returned.

    A record that is skipped counts as one that is returned, because it was decoded, too.
    """

    __slots__ = ("bytes_left", "records_left")

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.records_left = max_records
        self.bytes_left = max_bytes

    @property
    def is_spent(self) -> bool:
        """No further record may be returned."""
        return self.records_left <= 0 or self.bytes_left <= 0


class ExpirySkip:
    """Skips records whose time is over by their header. It counts them, by partition. `now_ms` reads the wall clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.skipped: Counter[TopicPartition] = Counter()
        self._now_ms = now_ms
        self._counted: dict[TopicPartition, int] = {}  # the end of those that were counted: some are decoded again

    def is_over(self, partition: TopicPartition, offset: int, headers: Headers) -> bool:
        """True if the record is skipped, which is counted then."""
        if not headers or not is_expired(headers, self._now_ms()):
            return False
        if offset >= self._counted.get(partition, 0):
            self.skipped[partition] += 1
            self._counted[partition] = offset + 1
        return True


class PartitionCursor:
    """State of one assigned partition. While `position` is None, nothing is fetched.

    `generation` counts seeks: it tells the answer to a request from before a seek. `topic_id` is the topic that the
    position belongs to, None until an answer tells it. Once the service says that the topic's name stands for another
    one, the cursor `is_replaced`: it fetches no more, returns what is prefetched, and then starts anew.
    """

    __slots__ = (
        "_answers",
        "_expiry",
        "_reading",
        "_records",
        "armed_under",
        "asked_ms",
        "asked_under",
        "asleep_until_ms",
        "buffered_bytes",
        "covered_ms",
        "covered_under",
        "empty_fetches",
        "error",
        "failures",
        "fetch_offset",
        "fruitless",
        "generation",
        "has_returned",
        "high_watermark",
        "is_in_flight",
        "is_late",
        "is_leased",
        "is_moved",
        "is_paused",
        "is_quiet",
        "is_replaced",
        "log_start_offset",
        "partition",
        "position",
        "records_at_ms",
        "records_gap_ms",
        "retry_at_ms",
        "returned_end",
        "topic_id",
        "was_woken",
        "woken_to",
    )

    def __init__(
        self, partition: TopicPartition, reading: Reading | None = None, expiry: ExpirySkip | None = None
    ) -> None:
        self.partition = partition
        self._expiry = expiry
        self._reading = reading or None  # None: records come as they are stored
        self.position: int | None = None
        self.has_returned = False  # a record, or the application has sought
        self.returned_end = 0  # the offset behind the last record returned, or where the cursor began
        self.topic_id: str | None = None
        self.is_replaced = False
        self.is_late = False  # it came after the group had begun to read
        self.is_leased = False  # the group says which topic it is, and takes the partition away with it
        self.is_moved = False  # the position may be below the group's commit on purpose
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
        self._answers: deque[_Answer] = deque()
        self._records: Iterator[Record] | None = None  # the rest of the oldest answer
        # For waiting.py. A coverage is the number of a subscription, 0 for none.
        self.asked_ms = -1  # when the last fetch was sent whose answer counts, be it of another reader; -1: none is
        self.covered_under = 0  # the coverage that was seen last, and since when
        self.covered_ms = 0
        self.asked_under = 0  # the coverage when the last fetch was sent
        self.armed_under = 0  # the coverage under which the service armed the partition
        self.asleep_until_ms = 0
        self.woken_to = 0  # the offset that wake-ups have told since the last fetch was sent
        self.was_woken = False  # a wake-up was the reason for the last fetch
        self.fruitless = 0  # such fetches in a row that found nothing
        self.empty_fetches = 0  # fetches in a row that found nothing, and armed nothing
        self.records_at_ms = 0  # when records came last, and the time between them and those before
        self.records_gap_ms = NEVER_MS

    @property
    def is_woken(self) -> bool:
        """A wake-up says that there is more than was fetched."""
        return self.woken_to > self.fetch_offset

    @property
    def is_behind(self) -> bool:
        """The log holds records that were not fetched, by what the consumer knows."""
        return self.high_watermark is not None and self.fetch_offset < self.high_watermark

    @property
    def has_records(self) -> bool:
        """Some answer is prefetched."""
        return bool(self._answers)

    def seek(self, offset: int | None) -> None:
        """Go on at `offset`. Drops what is prefetched or in flight for another offset."""
        self.generation += 1
        self.retry_at_ms = 0
        if offset is not None:
            self.returned_end = offset if self.position is None else min(offset, self.returned_end)
        self.position = offset
        self.fetch_offset = offset or 0
        self.is_in_flight = False
        self.is_quiet = False
        self.asked_ms = -1
        self.error = None
        self.buffered_bytes = 0
        self._answers.clear()
        self._records = None

    def moved(self) -> None:
        """The application has sought: the position may be below the group's commit on purpose."""
        self.is_moved = self.has_returned = True
        self.returned_end = self.position or 0

    def start_anew(self) -> None:
        """The name stands for another topic: look for a start in that one."""
        self.seek(None)
        self.topic_id = None
        self.is_replaced = False
        self.is_moved = False
        self.high_watermark = self.log_start_offset = None
        self.woken_to = 0

    def drop_prefetched(self) -> None:
        """Give the memory back. The records are fetched again when there is room."""
        self.seek(self.position)

    def add(self, data: memoryview, next_offset: int) -> None:
        """Take an answer's batches, and the offset at which the next fetch goes on."""
        self.fetch_offset = next_offset
        if len(data):
            self._answers.append(_Answer(data, next_offset, len(data)))
            self.buffered_bytes += len(data)
        elif not self.has_records:
            self.position = next_offset  # the log has nothing below it any more, or nothing that matches the filter
        else:
            self._answers[-1].next_offset = next_offset

    def take(self, budget: Budget) -> list[ConsumerRecord]:
        """Records of the oldest answer, decoded only within the budget; none if nothing is prefetched.

        None also if it has skipped so many records that the budget is spent.

        Raises CorruptError or InvalidError when the records before the bad batch have been returned. A registry that
        refuses, or a schema that is none, makes no record bad: that error has no `next_offset`. An undecodable
        batch stays: it raises again until `pass_over` or a seek. If the bytes were changed on their way, it drops the
        answer, so that the batch is read again, perhaps from another copy. Raises LookUpFirst for a value whose
        data key or schema is to be asked for, and for a value that cannot be read as for a batch of its offset alone.
        """
        taken: list[ConsumerRecord] = []
        while self._answers and not taken:
            answer = self._answers[0]
            if self._records is None:
                found = _from_offset(self.position or 0, decode(answer.batches))
                self._records = found if self._reading is None else _Records(found)
            try:
                self._decode(budget, taken)
            except LookUpFirst:
                if not taken:
                    raise
                return taken
            except PenstockError as error:
                self._stop_at(answer, error)
                if not taken:
                    raise as_sdk_error(in_partition(error, *self.partition)) from error
                return taken
            if budget.is_spent:
                return taken
            self._records = None
            self._drop(answer)
        return taken

    def undecodable_batch(self, error: PenstockError) -> UndecodableBatch:
        """The batch that `take` has raised this error for."""
        batches, first = self._answers[0].batches, error.facts["base_offset"]
        at, header = next((at, header) for at, header in walk(batches) if header.next_offset > first)
        return UndecodableBatch(
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=max(first, self.position or 0),
            base_offset=header.base_offset,
            next_offset=error.facts["next_offset"],
            data=bytes(batches[at : at + header.length]),
            error=error,
        )

    def pass_over(self, batch: UndecodableBatch) -> None:
        """Go on behind the batch that `take` has raised an error for."""
        answer = self._answers[0]
        self.position = batch.next_offset
        if isinstance(self._records, _Records):  # a value of the batch, whose other records come
            self._records.put_back(None)
            return
        answer.batches = answer.batches[len(batch.data) :]
        if not answer.batches:
            self._drop(answer)

    def _drop(self, answer: _Answer) -> None:
        self._answers.popleft()
        self.buffered_bytes -= answer.stored_bytes
        self.position = answer.next_offset

    def _stop_at(self, answer: _Answer, error: PenstockError) -> None:
        if not is_undecodable(error):
            self.seek(self.position)
            return
        if "offset" not in error.facts:  # else it is a value, which was put back
            answer.seek(error.facts["base_offset"])
            self._records = None

    def _decode(self, budget: Budget, taken: list[ConsumerRecord]) -> None:
        """Take records within the budget, and move the position behind those that were taken or skipped."""
        assert self._records is not None
        topic, partition = self.partition
        is_read, expiry = self._reading is not None, self._expiry
        bytes_left, skipped, reached = budget.bytes_left, 0, self.position
        make, append = tuple.__new__, taken.append  # tuple's own: ConsumerRecord(...) costs twice as much
        try:
            for record in islice(self._records, budget.records_left):
                key, value = record.key, record.value
                headers: Headers = tuple(record.headers) if record.headers else ()
                if value is not None:
                    bytes_left -= len(value)
                if key is not None:
                    bytes_left -= len(key)
                if headers and expiry is not None and expiry.is_over(self.partition, record.offset, headers):
                    bytes_left -= _headers_bytes(headers)
                    skipped, reached = skipped + 1, record.offset + 1
                    if bytes_left <= 0:
                        break
                    continue
                if is_read:
                    key, value, headers, more_bytes = self._read(record, headers)
                    bytes_left -= more_bytes
                if headers:
                    bytes_left -= _headers_bytes(headers)
                append(make(ConsumerRecord, (topic, partition, record.offset, record.timestamp, key, value, headers)))
                if bytes_left <= 0:
                    break
        finally:
            if taken:
                self.has_returned, self.returned_end = True, taken[-1].offset + 1
                reached = max(reached or 0, self.returned_end)
            self.position = reached
            budget.bytes_left = bytes_left
            budget.records_left -= len(taken) + skipped

    def _read(self, record: Record, headers: Headers) -> tuple[Any, Any, Headers, int]:
        """Key, value and headers as the application gets them, and the bytes that decryption adds."""
        assert self._reading is not None
        stored, more_bytes, is_decrypted = record.value, 0, False
        try:
            if self._reading.encryption is not None:
                stored, left = self._reading.encryption.decrypt_now(stored, record.key, headers)
                headers, more_bytes = tuple(left), len(stored or b"") - len(record.value or b"")
            is_decrypted = True
            value, key = self._reading.deserializers.deserialize(self.partition.topic, stored, record.key, headers)
        except PenstockError as error:
            assert isinstance(self._records, _Records)
            self._records.put_back(record)
            if isinstance(error, LookUpFirst | UnavailableError):  # the record may be read later
                raise
            offset = record.offset
            if is_decrypted and error.code.category is not Category.CORRUPT:  # the registry's fault, or the schema's
                told = f"offset {offset}: {error.message}; seek to {offset + 1} to go on without the record"
                raise PenstockError(error.code, told, offset=offset) from error
            raise PenstockError(
                error.code,
                f"offset {offset}: {error.message}",
                **{**error.facts, "offset": offset, "base_offset": offset, "next_offset": offset + 1},
            ) from error
        return key, value, headers, more_bytes


class _Records:
    """Records, of which the last one may be put back: it comes again, unless None takes its place."""

    __slots__ = ("_last", "_rest")

    def __init__(self, rest: Iterator[Record]) -> None:
        self._rest = rest
        self._last: Record | None = None

    def put_back(self, record: Record | None) -> None:
        self._last = record

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        record, self._last = self._last, None
        return next(self._rest) if record is None else record


def _headers_bytes(headers: Headers) -> int:
    return sum(_HEADER_OBJECT_BYTES + len(value or b"") for _, value in headers)


def _from_offset(offset: int, records: Iterator[Record]) -> Iterator[Record]:
    """The first batch of an answer may start below the fetched offset."""
    return dropwhile(lambda record: record.offset < offset, records)
