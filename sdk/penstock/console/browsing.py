"""Records for one page, by a bounded number of fetches wherever they lie in the log."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.consumer.fetch_buffer import FetchAnswer, FetchRequest
from penstock.consumer.fetch_call import fetch_answer, fetch_request
from penstock.consumer.partition_cursor import Budget, PartitionCursor
from penstock.errors import error_from_json
from penstock.http.http_message import raise_for_status
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    CONSOLE_FETCHES_MAX,
    CONSOLE_PAGE_BYTES_MAX,
    CONSOLE_RECORDS_MAX,
    CONSOLE_SCAN_BYTES_MAX,
    CONSOLE_SCAN_RECORDS_MAX,
    FETCH_BYTES_DEFAULT_MAX,
    FETCH_BYTES_MAX,
)
from penstock_core.records.undecodable import is_undecodable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The records of a page: from an offset on, those that match the policy `filter`, those with the key.

    A search by key looks at many records, and so asks for more at once. An offset below the log start is the log start.
    """

    place: TopicPartition
    offset: int
    filter: str | None = None
    key: bytes | None = None
    records_max: int = CONSOLE_RECORDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Records at `[start_offset, next_offset)`, and the bounds of the partition when they were read.

    `unreadable` says for each batch that cannot be decoded why it has no records here. `looked_at` counts the records
    that a search has compared.
    """

    records: Sequence[ConsumerRecord]
    unreadable: Sequence[str]
    start_offset: int
    next_offset: int
    log_start_offset: int
    high_watermark: int
    looked_at: int

    @property
    def is_at_end(self) -> bool:
        """Nothing comes behind this page yet."""
        return self.next_offset >= self.high_watermark


def browse(transport: Transport, wanted: Wanted) -> RecordPage:
    """Fetch `CONSOLE_FETCHES_MAX` times at most, until the page is full or the log ends."""
    reading = _Reading(wanted)
    for _ in range(CONSOLE_FETCHES_MAX):
        reading.take(_fetch(transport, [reading.cursor], wanted.filter, reading.fetch_bytes)[0])
        if reading.is_done:
            break
    return reading.page()


def newest(
    transport: Transport, starts: Sequence[tuple[TopicPartition, int]], filter_text: str | None = None
) -> list[ConsumerRecord]:
    """Records of several partitions from their offsets on, by one fetch, the newest first.

    Partitions whose records cannot be read are left out.
    """
    cursors = [PartitionCursor(place) for place, _ in starts]
    for cursor, (_, offset) in zip(cursors, starts, strict=True):
        cursor.seek(offset)
    found: list[ConsumerRecord] = []
    budget = Budget(CONSOLE_SCAN_RECORDS_MAX, CONSOLE_PAGE_BYTES_MAX)
    for cursor, answer in zip(cursors, _fetch(transport, cursors, filter_text, FETCH_BYTES_DEFAULT_MAX), strict=True):
        if isinstance(answer, _Part) and not budget.is_spent:
            cursor.add(answer.data, answer.next_offset)
            try:
                found += cursor.take(budget)
            except PenstockError:
                continue
    return sorted(found, key=lambda record: (-record.timestamp_ms, record.partition, -record.offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The answer for one partition."""

    data: memoryview
    next_offset: int
    log_start_offset: int
    high_watermark: int


class _Reading:
    """One page while it is read."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._start_offset = wanted.offset
        self._records: list[ConsumerRecord] = []
        self._unreadable: list[str] = []
        self._looked_at = 0
        self._bounds = (0, 0)
        self.cursor = PartitionCursor(wanted.place)
        self.cursor.seek(wanted.offset)
        self._budget = Budget(wanted.records_max, CONSOLE_PAGE_BYTES_MAX)
        self.fetch_bytes = FETCH_BYTES_DEFAULT_MAX
        if wanted.key is not None:
            self._budget = Budget(CONSOLE_SCAN_RECORDS_MAX, CONSOLE_SCAN_BYTES_MAX)
            self.fetch_bytes = FETCH_BYTES_MAX

    @property
    def _position(self) -> int:
        return self.cursor.position or 0

    @property
    def is_done(self) -> bool:
        """The page is full, or the log ends."""
        is_full = self._budget.is_spent or len(self._records) >= self._wanted.records_max
        return is_full or self._position >= self._bounds[1]

    def take(self, answer: "_Part | PenstockError") -> None:
        """Take the answer of a fetch. Raises its error, unless the error says where the log starts or ends."""
        if isinstance(answer, PenstockError):
            if answer.code is not ErrorCode.OFFSET_OUT_OF_RANGE or "log_start_offset" not in answer.facts:
                raise answer
            self._bounds = (answer.facts["log_start_offset"], answer.facts["high_watermark"])
            position = answer.facts.get("to", self._position)  # behind the jump of a restore
            self._start_offset = min(max(position, self._bounds[0]), self._bounds[1])
            self.cursor.seek(self._start_offset)
            return
        self._bounds = (answer.log_start_offset, answer.high_watermark)
        self.cursor.add(answer.data, answer.next_offset)
        while self.cursor.has_records and not self.is_done:
            self._decode()

    def _decode(self) -> None:
        try:
            taken = self.cursor.take(self._budget)
        except PenstockError as error:
            if not is_undecodable(error):
                raise
            self._unreadable.append(error.message)
            self.cursor.pass_over(self.cursor.undecodable_batch(error))
            return
        self._looked_at += len(taken)
        key = self._wanted.key
        for record in taken if key is None else [each for each in taken if each.key == key]:
            if len(self._records) == self._wanted.records_max:
                self.cursor.seek(record.offset)
                break
            self._records.append(record)

    def page(self) -> RecordPage:
        """What was read."""
        return RecordPage(
            records=self._records,
            unreadable=self._unreadable,
            start_offset=self._start_offset,
            next_offset=self._position,
            log_start_offset=self._bounds[0],
            high_watermark=self._bounds[1],
            looked_at=self._looked_at,
        )


def _fetch(
    transport: Transport, cursors: Sequence[PartitionCursor], filter_text: str | None, max_bytes: int
) -> list[_Part | PenstockError]:
    """One request. Raises the error of the whole request."""
    body = {
        "partitions": [
            {
                "topic": cursor.partition.topic,
                "partition": cursor.partition.partition,
                "offset": cursor.fetch_offset,
                "max_bytes": max(1, max_bytes // len(cursors)),
            }
            for cursor in cursors
        ],
        "max_bytes": max_bytes,
        "min_bytes": 1,
        "wait_ms": 0,
        **({} if filter_text is None else {"filter": filter_text}),
    }
    request = fetch_request(FetchRequest(cursors=tuple(cursors), generations=(0,) * len(cursors), body=body))
    response = transport.call(request.method, request.path, request.query, request.headers, request.body)
    raise_for_status(request, response)
    return _parts(fetch_answer(request, response, len(cursors)))


def _parts(answer: FetchAnswer) -> list[_Part | PenstockError]:
    parts: list[_Part | PenstockError] = []
    at = 0
    for each in answer.partitions:
        length = int(each.get("length", 0))
        if "error" in each:
            parts.append(error_from_json(each["error"]))
        else:
            parts.append(
                _Part(
                    data=answer.body[at : at + length],
                    next_offset=each["next_offset"],
                    log_start_offset=each["log_start_offset"],
                    high_watermark=each["high_watermark"],
                )
            )
        at += length
    return parts
