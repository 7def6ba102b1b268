"""What the consumer decides: what to fetch next, what to keep, what to hand out. No I/O, no threads, no clock.

    next_request -> (the driver calls) -> accept | fail -> take

Invariants:
- Records of a partition are handed out in offset order, each offset at most once between two seeks.
- A partition is in one request at a time; an answer from before a seek, pause for memory or unassignment is dropped.
- What is prefetched and what answers may bring stays within `buffer_bytes` (one oversized batch apart).
- Quiet partitions, whose last answer was empty, share one long poll: an idle consumer pays for one request per wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.errors import InvalidError, error_from_json
from penstock.model import ConsumerRecord, TopicPartition
from penstock.partition_cursor import PartitionCursor
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_PARTITIONS_MAX

OffsetReset = Literal["earliest", "latest", "none"]

PARTITION_BYTES_MIN = 1024 * 1024  # of one answer: below that the service reads many small ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Bounds of prefetching. Bytes are counted as stored, that is, compressed."""

    fetch_max_bytes: int
    fetch_wait_ms: int
    buffer_bytes: int
    max_in_flight: int
    offset_reset: OffsetReset
    retry: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Partitions asked for together, with the generation that each had then."""

    cursors: tuple[PartitionCursor, ...]
    generations: tuple[int, ...]
    body: Mapping[str, Any]


class FetchAnswer(NamedTuple):
    """One entry per partition, in request order, and the bytes that they count."""

    partitions: Sequence[Mapping[str, Any]]
    body: memoryview


class FetchBuffer:
    """The assigned partitions and what is prefetched of them."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        # In order of turn: whoever was served last is last.
        self._cursors: dict[TopicPartition, PartitionCursor] = {}
        self._in_flight = 0
        self._failures = 0
        self._error: PenstockError | None = None
        self.wake_at_ms = NEVER_MS  # when `next_request` may next have one, if nothing else happens before

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; partitions that were read before keep their place."""
        self._cursors = {each: self._cursors.get(each) or PartitionCursor(each) for each in partitions}
        self.wake_at_ms = 0

    def assignment(self) -> list[TopicPartition]:
        return list(self._cursors)

    def cursor(self, partition: TopicPartition) -> PartitionCursor:
        """The state of an assigned partition. Raises InvalidError for another."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST, f"{partition.topic}[{partition.partition}] is not assigned to this consumer"
            )
        return cursor

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on there; what is prefetched of it is dropped."""
        self.cursor(partition).seek(offset)
        self.wake_at_ms = 0

    def pause(self, partition: TopicPartition, is_paused: bool) -> None:
        """Hand out nothing and fetch nothing, or go on. What is prefetched is kept while the others leave room."""
        self.cursor(partition).is_paused = is_paused
        self.wake_at_ms = 0

    def without_position(self) -> list[TopicPartition]:
        """Partitions whose start is not known yet."""
        return [each for each, cursor in self._cursors.items() if cursor.position is None]

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, where it is known."""
        return {each: cursor.position for each, cursor in self._cursors.items() if cursor.position is not None}

    def next_request(self, now_ms: int) -> FetchRequest | None:
        """What to ask for now, or None until something changes or `wake_at_ms` comes."""
        settings = self._settings
        self.wake_at_ms = NEVER_MS
        slots = settings.max_in_flight - self._in_flight
        if slots <= 0 or not self._has_room():
            return None
        wanted = [cursor for cursor in self._cursors.values() if self._is_wanted(cursor)]
        cursors = [cursor for cursor in wanted if cursor.retry_at_ms <= now_ms]
        later = [cursor.retry_at_ms for cursor in wanted if cursor.retry_at_ms > now_ms]
        self.wake_at_ms = min(later, default=NEVER_MS)
        behind = [cursor for cursor in cursors if cursor.is_behind]
        if len(behind) > 1 and slots > 1:
            cursors = behind[: -(-len(behind) // slots)]  # the next slot takes its share of the rest
        elif self._in_flight and all(cursor.is_quiet for cursor in cursors):
            return None
        return self._request(cursors[:REQUEST_PARTITIONS_MAX]) if cursors else None

    def complete(self, request: FetchRequest, answer: FetchAnswer | PenstockError, now_ms: int, chance: float) -> None:
        """Take what came of a request: `accept` or `fail`."""
        if isinstance(answer, PenstockError):
            self.fail(request, answer, now_ms, chance)
        else:
            self.accept(request, answer.partitions, answer.body, now_ms, chance)

    def accept(
        self, request: FetchRequest, answers: Sequence[Mapping[str, Any]], body: memoryview, now_ms: int, chance: float
    ) -> None:
        """Take the answer to a request: one entry per partition, in request order, and the bytes they count."""
        self._in_flight -= 1
        self._failures = 0
        self.wake_at_ms = now_ms
        at = 0
        for cursor, generation, answer in zip(request.cursors, request.generations, answers, strict=True):
            length = int(answer.get("length", 0))
            if cursor.generation == generation:
                cursor.is_in_flight = False
                if "error" in answer:
                    self._refused(cursor, error_from_json(answer["error"]), now_ms, chance)
                else:
                    self._answered(cursor, answer, body[at : at + length])
            at += length

    def fail(self, request: FetchRequest, error: PenstockError, now_ms: int, chance: float) -> None:
        """Take the failure of a whole request: try again later, or let `take` raise it."""
        self._in_flight -= 1
        self._failures += 1
        self.wake_at_ms = now_ms
        retry_at_ms = self._retry_at_ms(error, self._failures, now_ms, chance)
        if not error.code.is_retriable:
            self._error = error
        for cursor, generation in zip(request.cursors, request.generations, strict=True):
            if cursor.generation == generation:
                cursor.is_in_flight = False
                cursor.retry_at_ms = retry_at_ms

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to `max_records` of what is prefetched; partitions take turns, a batch each.

        Raises an error that stands in the way, once, when nothing else is left to hand out.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < max_records:
            run = self.take_run(max_records - len(taken), is_raising=not taken)
            if not run:
                break
            taken += run
        return taken

    def take_run(self, max_records: int, *, is_raising: bool = True) -> list[ConsumerRecord]:
        """As `take`, but of one partition only."""
        for partition, cursor in list(self._cursors.items()):
            if cursor.is_paused or not cursor.has_records:
                continue
            self._to_the_end(partition)
            buffered_bytes = cursor.buffered_bytes
            run = cursor.take(max_records)
            if cursor.buffered_bytes < buffered_bytes:
                self.wake_at_ms = 0  # there is room again
            if run:
                return run
        if is_raising:
            self._raise_error()
        return []

    def _is_wanted(self, cursor: PartitionCursor) -> bool:
        return (
            cursor.position is not None
            and not cursor.is_paused
            and not cursor.is_in_flight
            and cursor.error is None
            and cursor.buffered_bytes < self._settings.fetch_max_bytes
        )

    def _has_room(self) -> bool:
        needed = (self._in_flight + 1) * self._settings.fetch_max_bytes
        if self._buffered_bytes() + needed > self._settings.buffer_bytes:
            # Paused partitions must not starve the others.
            for cursor in self._cursors.values():
                if cursor.is_paused and cursor.buffered_bytes:
                    cursor.drop_prefetched()
        return self._buffered_bytes() + needed <= self._settings.buffer_bytes

    def _buffered_bytes(self) -> int:
        return sum(cursor.buffered_bytes for cursor in self._cursors.values())

    def _request(self, cursors: list[PartitionCursor]) -> FetchRequest:
        max_bytes = self._settings.fetch_max_bytes
        share = min(max_bytes, max(PARTITION_BYTES_MIN, max_bytes // len(cursors)))
        for cursor in cursors:
            cursor.is_in_flight = True
            self._to_the_end(cursor.partition)
        self._in_flight += 1
        body = {
            "partitions": [
                {
                    "topic": cursor.partition.topic,
                    "partition": cursor.partition.partition,
                    "offset": cursor.fetch_offset,
                    "max_bytes": share,
                }
                for cursor in cursors
            ],
            "max_bytes": max_bytes,
            "min_bytes": 1,
            "wait_ms": self._settings.fetch_wait_ms,
        }
        return FetchRequest(
            cursors=tuple(cursors), generations=tuple(cursor.generation for cursor in cursors), body=body
        )

    def _answered(self, cursor: PartitionCursor, answer: Mapping[str, Any], data: memoryview) -> None:
        cursor.failures = 0
        cursor.retry_at_ms = 0
        cursor.log_start_offset = answer["log_start_offset"]
        cursor.high_watermark = answer["high_watermark"]
        cursor.is_quiet = not data and not cursor.is_behind
        cursor.add(data, answer["next_offset"])

    def _refused(self, cursor: PartitionCursor, error: PenstockError, now_ms: int, chance: float) -> None:
        reset = {"earliest": "log_start_offset", "latest": "high_watermark"}.get(self._settings.offset_reset, "")
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and reset in error.facts:
            cursor.seek(int(error.facts[reset]))
            return
        cursor.failures += 1
        cursor.retry_at_ms = self._retry_at_ms(error, cursor.failures, now_ms, chance)
        if not error.code.is_retriable:
            cursor.error = error

    def _retry_at_ms(self, error: PenstockError, failures: int, now_ms: int, chance: float) -> int:
        policy = self._settings.retry
        retry_at_ms = policy.retry_at_ms(error, failures=failures, now_ms=now_ms, deadline_ms=NEVER_MS, chance=chance)
        return now_ms + policy.backoff_max_ms if retry_at_ms is None else retry_at_ms

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        for cursor in self._cursors.values():
            if error is None and cursor.error is not None and not cursor.has_records:
                error, cursor.error = cursor.error, None
        if error is not None:
            raise error

    def _to_the_end(self, partition: TopicPartition) -> None:
        cursor = self._cursors.pop(partition, None)
        if cursor is not None:
            self._cursors[partition] = cursor
