"""The consumer's decisions about fetches: what to fetch next, what to keep, what to return.

No I/O, no threads, no clock.

    next_request -> (the driver calls) -> accept | fail -> take

Invariants:

- Records of a partition are returned in offset order, each offset at most once between two seeks.
- A partition is in one request at a time. An answer from before a seek, a pause for memory or an unassignment is
  dropped.
- Prefetched records and the answers that may come stay within `buffer_bytes`, apart from one oversized batch.
- A fetch names the topic's id as soon as it is known. So an offset never counts in a topic that was made anew.
- With a filter, answers skip records. Positions and fetch offsets go by what the service has looked at.
- The buffer fetches nothing that another reader of the process has fetched or fetches (shared_reads.py).
- Quiet partitions, whose last answer was empty, share one request. waiting.py says when it is due, and whether the
  service waits for records or arms the partitions.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.consumer.partition_cursor import Budget, ExpirySkip, PartitionCursor
from penstock.consumer.shared_reads import Claim, Flight, Kept, SharedReader, parts_of
from penstock.consumer.waiting import Waiting
from penstock.errors import InvalidError, error_from_json
from penstock.group.group_calls import Look
from penstock.model import ConsumerRecord, TopicPartition
from penstock.retry import NEVER_MS, RetryPolicy
from penstock.schemas.serialization import Reading
from penstock.wake_ups.events import WakeUp
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_PARTITIONS_MAX, SDK_POLL_BYTES_DEFAULT_MAX

_log = logging.getLogger("penstock.consumer")

OffsetReset = Literal["earliest", "latest", "none"]

PARTITION_BYTES_MIN = 1024 * 1024  # in one answer: with less, the service reads many small ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Bounds of prefetching. Bytes are counted as stored, that is, compressed; those of a poll as decoded.

    `filter` is a policy as JSON: the service sends only the records that match.
    """

    fetch_max_bytes: int
    fetch_wait_ms: int
    buffer_bytes: int
    max_in_flight: int
    offset_reset: OffsetReset
    retry: RetryPolicy
    max_poll_bytes: int = SDK_POLL_BYTES_DEFAULT_MAX
    fetch_interval_ms: int = 0
    is_woken: bool = False
    filter: str | None = None
    reading: Reading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Partitions that are fetched together, with the generation that each had at that time.

    `kept` is the answer to other readers that stands in for a fetch. `flight` tells it to the others.
    """

    cursors: tuple[PartitionCursor, ...]
    generations: tuple[int, ...]
    body: Mapping[str, Any]
    kept: "FetchAnswer | None" = None
    flight: Flight | None = None


class FetchAnswer(NamedTuple):
    """One entry per partition, in request order, and the bytes that they count.

    `again_ms`: the service was short of instances, and wants the next fetch of what is quiet after so long.
    """

    partitions: Sequence[Mapping[str, Any]]
    body: memoryview
    again_ms: int = 0


class FetchBuffer:
    """The assigned partitions and their prefetched records."""

    def __init__(self, settings: FetchSettings, expiry: ExpirySkip | None = None) -> None:
        self._settings = settings
        self._expiry = expiry
        self.waiting = Waiting(settings.fetch_wait_ms, settings.fetch_interval_ms, is_woken=settings.is_woken)
        # In order of turn: the partition that was served last is last.
        self._cursors: dict[TopicPartition, PartitionCursor] = {}
        self._told_partitions: dict[str, tuple[int, int]] = {}  # by topic: how many, and when a fetch told it
        self.gone: set[TopicPartition] = set()  # leased ones whose topic was deleted, for the rebalance to take
        self._in_flight = 0
        self._failures = 0
        self._error: PenstockError | None = None
        self.wake_at_ms = NEVER_MS  # when `next_request` may have one, if nothing happens before
        self.is_skipping = False  # the last take has skipped as many records as it may look at, and there may be more
        self._sharing: SharedReader | None = None

    def share(self, sharing: SharedReader | None) -> None:
        """Share what is read with these readers of the process from now on, until `close`. With None, read alone."""
        self.close()
        self._sharing = sharing
        if sharing is not None:
            sharing.reads(self._cursors)
        self.wake_at_ms = 0

    def close(self) -> None:
        """Fetch no more: other readers wait for none of these fetches."""
        if self._sharing is not None:
            self._sharing.leave()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; partitions that were read before keep their place."""
        reading, expiry = self._settings.reading, self._expiry
        self._cursors = {each: self._cursors.get(each) or PartitionCursor(each, reading, expiry) for each in partitions}
        if self._sharing is not None:
            self._sharing.reads(self._cursors)
        self._changed()

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, in order of turn."""
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
        """Go on at an offset. Drops the prefetched records of the partition."""
        self.cursor(partition).seek(offset)
        self._changed()

    def start(self, partition: TopicPartition, offset: int, topic_id: str | None) -> None:
        """Begin at an offset of the topic with this id, where it is known."""
        self.cursor(partition).topic_id = topic_id
        self.seek(partition, offset)

    def lease(self, partition: TopicPartition, topic_id: str, *, is_late: bool) -> None:
        """The group has given the partition of this topic to the member that reads it."""
        cursor = self.cursor(partition)
        cursor.is_late = is_late
        cursor.topic_id = topic_id
        cursor.is_leased = True
        self._changed()

    def moved(self, partition: TopicPartition) -> None:
        """The application has sought: the position may be below the group's commit on purpose."""
        self.cursor(partition).moved()

    def settle(self, partition: TopicPartition) -> None:
        """The group has committed where the application went."""
        cursor = self._cursors.get(partition)
        if cursor is not None:
            cursor.is_moved = False

    def replaced(self, partition: TopicPartition) -> None:
        """The name of the partition's topic stands for another topic: start anew there when all is returned."""
        cursor = self._cursors.get(partition)
        if cursor is not None and not cursor.is_leased:
            cursor.is_replaced = True
            self._changed()

    def pause(self, partition: TopicPartition, is_paused: bool) -> None:
        """Return and fetch nothing, or go on. Prefetched records stay while the other partitions leave room."""
        cursor = self.cursor(partition)
        cursor.is_paused = is_paused
        if not is_paused and not cursor.is_in_flight:
            cursor.asked_ms = -1  # what others have found meanwhile may be too old for it
        self._changed()

    def woken(self, wake_up: WakeUp) -> None:
        """Take a wake-up of any partition: a hint to fetch."""
        self.waiting.woken(wake_up)
        self.wake_at_ms = 0

    def to_look_at(self, until_ms: int) -> Sequence[Look]:
        """The partitions that a heartbeat may look at in place of a fetch."""
        return self.waiting.to_look_at(until_ms)

    def looked(self, looks: Sequence[Look], armed: frozenset[tuple[str, int]], now_ms: int, chance: float) -> None:
        """Take the answer of a heartbeat that has looked."""
        self.waiting.looked(looks, armed, now_ms, chance)
        self.wake_at_ms = 0

    def look_again(self) -> None:
        """Wake-ups may cover other partitions now."""
        self.wake_at_ms = 0

    def without_position(self) -> list[TopicPartition]:
        """Partitions whose start is not known yet."""
        return [each for each, cursor in self._cursors.items() if cursor.position is None]

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to return, of each partition where it is known."""
        return {each: cursor.position for each, cursor in self._cursors.items() if cursor.position is not None}

    def told_partitions(self, topic: str, since_ms: int) -> int | None:
        """The number of the topic's partitions, if a fetch that arms has told it since then."""
        count, told_ms = self._told_partitions.get(topic, (0, -1))
        return count if told_ms >= since_ms else None

    def next_request(self, now_ms: int) -> FetchRequest | None:
        """The fetch to send now, or None until something changes or `wake_at_ms` comes."""
        settings, waiting = self._settings, self.waiting
        waiting.look(self._cursors.values(), now_ms)
        self.wake_at_ms = forget_ms = NEVER_MS if self._sharing is None else self._sharing.forget_old(now_ms)
        slots = settings.max_in_flight - self._in_flight
        if slots <= 0 or not self._has_room():
            return None
        wanted = [cursor for cursor in self._cursors.values() if self._is_wanted(cursor)]
        cursors = waiting.due(wanted, now_ms)
        later = [due_ms for due_ms in map(waiting.due_ms, wanted) if due_ms > now_ms]
        self.wake_at_ms = min([forget_ms, *later])
        behind = [cursor for cursor in cursors if cursor.is_behind]
        paced = [cursor for cursor in cursors if waiting.is_paced(cursor)]
        if len(behind) > 1 and slots > 1 and paced:
            cursors = paced  # a catch-up does not keep records of others waiting
        elif len(behind) > 1 and slots > 1:
            cursors = behind[: -(-len(behind) // slots)]  # the next slot takes its share of the rest
        elif self._in_flight and all(each.is_quiet and not each.is_woken for each in cursors):
            cursors = [each for each in cursors if waiting.is_brief(each)]
        return self._shared_request(cursors[:REQUEST_PARTITIONS_MAX], now_ms) if cursors else None

    def complete(self, request: FetchRequest, answer: FetchAnswer | PenstockError, now_ms: int, chance: float) -> None:
        """Take the outcome of a request: `accept` or `fail`."""
        if request.flight is not None and self._sharing is not None:
            if isinstance(answer, FetchAnswer):
                parts = parts_of(answer)[: len(request.flight.wanted)]
                self._sharing.end(request.flight, parts, len(answer.body))
            else:
                self._sharing.end(request.flight, None)
        if isinstance(answer, PenstockError):
            self.fail(request, answer, now_ms, chance)
        else:
            self.accept(request, answer.partitions, answer.body, now_ms, chance)
            self.waiting.cut_short(request.cursors, answer.again_ms, now_ms, chance)

    def accept(
        self, request: FetchRequest, answers: Sequence[Mapping[str, Any]], body: memoryview, now_ms: int, chance: float
    ) -> None:
        """Take the answer to a request: one entry per partition, in request order, and the bytes they count."""
        self._in_flight -= 1
        self._failures = 0
        self.wake_at_ms = now_ms
        at = found = 0
        for cursor, generation, answer in zip(request.cursors, request.generations, answers, strict=True):
            length = int(answer.get("length", 0))
            if cursor.generation == generation:
                cursor.is_in_flight = False
                fetched_from = cursor.fetch_offset
                if "error" in answer:
                    self._refused(cursor, error_from_json(answer["error"]), now_ms, chance)
                else:
                    self._answered(cursor, answer, body[at : at + length])
                    found += cursor.fetch_offset > fetched_from
                    if "topic_partitions" in answer:
                        self._told_partitions[cursor.partition.topic] = (answer["topic_partitions"], now_ms)
                    self.waiting.answered(
                        cursor,
                        is_armed=answer.get("armed") is True,
                        has_records=length > 0,
                        has_moved=cursor.fetch_offset > fetched_from,
                        has_others=len(body) > length,
                        now_ms=now_ms,
                        chance=chance,
                    )
            at += length
        self.waiting.answered_all(found, was_arming="arm" in request.body, now_ms=now_ms, chance=chance)

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
        """Up to `max_records` prefetched records and about `max_poll_bytes`. Partitions take turns, a batch each.

        Raises an error that is in the way, once, when there are no other records to return.
        """
        budget = Budget(max_records, self._settings.max_poll_bytes)
        taken: list[ConsumerRecord] = []
        while not budget.is_spent:
            try:
                run = self._take_run(budget)
            except PenstockError:
                if not taken:
                    raise
                break  # the next call meets the same batch
            if not run:
                break
            taken += run
        self.is_skipping = budget.is_spent and not taken
        if not taken:
            self._raise_error()
        return taken

    def take_run(self, max_records: int) -> list[ConsumerRecord]:
        """As `take`, but of one partition only."""
        budget = Budget(max_records, self._settings.max_poll_bytes)
        run = self._take_run(budget)
        self.is_skipping = budget.is_spent and not run
        if not run:
            self._raise_error()
        return run

    def _take_run(self, budget: Budget) -> list[ConsumerRecord]:
        for partition, cursor in list(self._cursors.items()):
            if cursor.is_replaced and not cursor.has_records:
                cursor.start_anew()
                self.waiting.is_stale = True
            if cursor.is_paused or not cursor.has_records:
                continue
            self._to_the_end(partition)
            buffered_bytes = cursor.buffered_bytes
            run = cursor.take(budget)
            if cursor.buffered_bytes < buffered_bytes:
                self.wake_at_ms = 0  # there is room again
            if run or budget.is_spent:
                return run
        return []

    def _is_wanted(self, cursor: PartitionCursor) -> bool:
        return (
            cursor.position is not None
            and not cursor.is_paused
            and not cursor.is_in_flight
            and cursor.error is None
            and not cursor.is_replaced
            and cursor.buffered_bytes < self._settings.fetch_max_bytes
        )

    def _has_room(self) -> bool:
        needed = (self._in_flight + 1) * self._settings.fetch_max_bytes
        if self._buffered_bytes() + needed > self._settings.buffer_bytes:
            # Paused partitions must not starve the partitions that are read.
            for cursor in self._cursors.values():
                if cursor.is_paused and cursor.buffered_bytes:
                    cursor.drop_prefetched()
        return self._buffered_bytes() + needed <= self._settings.buffer_bytes

    def _buffered_bytes(self) -> int:
        return sum(cursor.buffered_bytes for cursor in self._cursors.values())

    def _changed(self) -> None:
        self.waiting.is_stale = True
        self.wake_at_ms = 0

    def _shared_request(self, cursors: list[PartitionCursor], now_ms: int) -> FetchRequest | None:
        """The fetch of what no other reader has fetched or fetches. The answer to another's fetch needs no call."""
        sharing = self._sharing
        common: list[PartitionCursor] = []
        alone: list[PartitionCursor] = []
        for each in cursors:
            is_common = sharing is not None and each.topic_id is not None and sharing.is_common(each.partition)
            (common if is_common else alone).append(each)
        if sharing is None or not common:
            return self._request(cursors, now_ms)
        wanted = [self.waiting.wanted(each, self._settings.filter, now_ms) for each in common]
        claim = sharing.claim(wanted, self._settings.fetch_max_bytes, now_ms, self._settings.fetch_wait_ms)
        if claim.kept:
            return self._kept_request(common, claim)
        self.wake_at_ms = min(self.wake_at_ms, claim.busy_until_ms)
        own = [common[index] for index in claim.own]
        return self._request([*own, *alone], now_ms, claim.flight) if own or alone else None

    def _kept_request(self, common: Sequence[PartitionCursor], claim: Claim) -> FetchRequest:
        taken = {common[index]: kept for index, kept in claim.kept.items()}
        body = {"partitions": [_entry(each, len(kept.data)) for each, kept in taken.items()]}
        parts = [kept.data for kept in taken.values() if kept.data]
        answer = FetchAnswer(
            [_as_known(cursor, kept) for cursor, kept in taken.items()],
            parts[0] if len(parts) == 1 else memoryview(b"".join(parts)),
        )
        return self._sent([*taken], {**body, **self.waiting.share(taken)}, kept=answer)

    def _request(self, cursors: list[PartitionCursor], now_ms: int, flight: Flight | None = None) -> FetchRequest:
        max_bytes = self._settings.fetch_max_bytes
        share = min(max_bytes, max(PARTITION_BYTES_MIN, max_bytes // len(cursors)))
        body = {
            "partitions": [_entry(cursor, share) for cursor in cursors],
            "max_bytes": max_bytes,
            "min_bytes": 1,
            **self.waiting.ask(cursors, now_ms),
            **({} if self._settings.filter is None else {"filter": self._settings.filter}),
        }
        return self._sent(cursors, body, flight=flight)

    def _sent(
        self,
        cursors: Sequence[PartitionCursor],
        body: Mapping[str, Any],
        *,
        kept: FetchAnswer | None = None,
        flight: Flight | None = None,
    ) -> FetchRequest:
        self._in_flight += 1
        for cursor in cursors:
            cursor.is_in_flight = True
            self._to_the_end(cursor.partition)
        generations = tuple(cursor.generation for cursor in cursors)
        return FetchRequest(cursors=tuple(cursors), generations=generations, body=body, kept=kept, flight=flight)

    def _answered(self, cursor: PartitionCursor, answer: Mapping[str, Any], data: memoryview) -> None:
        cursor.failures = 0
        cursor.retry_at_ms = 0
        if cursor.topic_id is None:
            cursor.topic_id = answer.get("topic_id")
            self.waiting.is_stale = True
        cursor.log_start_offset = answer["log_start_offset"]
        cursor.high_watermark = answer["high_watermark"]
        cursor.add(data, answer["next_offset"])
        cursor.is_quiet = not data and not cursor.is_behind

    def _refused(self, cursor: PartitionCursor, error: PenstockError, now_ms: int, chance: float) -> None:
        reset = {"earliest": "log_start_offset", "latest": "high_watermark"}.get(self._settings.offset_reset, "")
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and reset in error.facts:
            if "to" in error.facts:  # a restore took records that it had read: it has missed none up to there
                _log.warning("%s[%d]: %s", *cursor.partition, error)
                cursor.add(memoryview(b""), int(error.facts["to"]))
                return
            cursor.seek(int(error.facts[reset]))
            cursor.is_moved = True
            return
        cursor.failures += 1
        cursor.retry_at_ms = self._retry_at_ms(error, cursor.failures, now_ms, chance)
        if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
            _log.warning("%s[%d]: %s", *cursor.partition, error)
            # A member's group takes the partition away, and gives the new one.
            cursor.is_replaced = not cursor.is_leased
            self.waiting.is_stale = True
        elif error.code is ErrorCode.UNKNOWN_TOPIC and cursor.is_leased:
            _log.warning("%s[%d]: %s", *cursor.partition, error)
            self.gone.add(cursor.partition)
        elif not error.code.is_retriable:
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


def _as_known(cursor: PartitionCursor, kept: Kept) -> Mapping[str, Any]:
    """The entry of a kept answer. The reader may know newer bounds of the log."""
    return {
        **kept.entry,
        "high_watermark": max(kept.entry["high_watermark"], cursor.high_watermark or 0),
        "log_start_offset": max(kept.entry["log_start_offset"], cursor.log_start_offset or 0),
    }


def _entry(cursor: PartitionCursor, max_bytes: int) -> Mapping[str, Any]:
    entry: dict[str, Any] = {
        "topic": cursor.partition.topic,
        "partition": cursor.partition.partition,
        "offset": cursor.fetch_offset,
        "max_bytes": max_bytes,
    }
    return entry if cursor.topic_id is None else {**entry, "topic_id": cursor.topic_id}
