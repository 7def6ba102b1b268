"""The producer's decisions: which batches the next request carries, which it sends again, and what happens to each.

open_batches.py decides which batch a record joins.

No I/O, no threads, no clock. Times are arguments, in milliseconds of one monotonic clock, and so is chance. A thread or
a task drives it (sender.py, async_sender.py).

    append -> PartitionQueue: [sealed batch, sealed batch, open batch] -> drain -> request -> complete
                    ^--------------- retriable: back to the front, in order ----------------'

Invariants:

- A partition is in at most one request at a time, and its batches leave in order: a retry never reorders.
- Batches are numbered when they first leave. If the service may have stored some of them, they go again with the same
  numbers and in the same request, so that the service recognises them (docs/adr/0010). After a failure the producer
  does not know what the service stored. It goes on in that partition under a new producer id, from 0. Batches that
  surely were not stored give their numbers back, and take along what has come since.
- If a partition was closed, its records that surely were not stored move to other partitions, one by one. Records that
  may have been stored never move. moved_batches.py tells how topics keep the order of keys meanwhile.
- Every appended record's batch gets exactly one outcome, by `complete`, `expire` or `abandon`.
- `buffered_bytes` counts the batches without an outcome, and does not exceed `buffer_bytes`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.errors import DeliveryTimeoutError, as_maybe_applied
from penstock.producer.batching.moved_batches import (
    KeyPlacement,
    MovedBatches,
    may_send,
    places_after,
    records_to_turn,
    writable_after,
)
from penstock.producer.batching.open_batches import OpenBatches, close_delayed
from penstock.producer.batching.pacing import (
    FRAME_OVERHEAD_BYTES,
    AccumulatorSettings,
    entry_overhead,
    record_size,
    rest_after,
    that_fit,
)
from penstock.producer.batching.producer_batch import Numbering, PartitionQueue, ProducerBatch, TopicQueues
from penstock.producer.delays import Timer
from penstock.retry import NEVER_MS
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.limits import REQUEST_PARTITIONS_MAX, SDK_REQUEST_TIMERS_MAX
from penstock_core.records.codec import Record
from penstock_core.records.producer_state import SEQUENCE_MAX

PRODUCER_IDS = 2**63  # two that are chosen at random from so many do not meet
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition's part of a request."""

    queue: PartitionQueue
    batches: tuple[ProducerBatch, ...]


class Accumulator(OpenBatches):
    """The batches of a producer. `choose(n)` picks one of n: a partition for records without key, or a producer id."""

    def __init__(self, settings: AccumulatorSettings, choose: Callable[[int], int]) -> None:
        super().__init__(settings, choose)
        self._in_flight: dict[PartitionQueue, None] = {}  # with batches in a request
        self._is_abandoned = False
        self._moved = MovedBatches()
        self._finished_sources: list[ProducerBatch] = []  # whose records were moved, and are finished by now

    def drain(self, now_ms: int) -> list[Entry]:
        """The next request, or nothing until `wake_at_ms`.

        A request leaves when the oldest batch of one partition is full or has lingered. It takes along all batches that
        wait, oldest first, and of each partition as many as fit: a larger request costs the same.
        """
        self._turn_topics((queue.topic for queue in self._queues), now_ms)
        free = [q for q in self._queues if not q.in_flight and q.retry_at_ms <= now_ms and may_send(q)]
        if not any(self._ready_at_ms(queue) <= now_ms for queue in free):
            self.wake_at_ms = min(map(self._ready_at_ms, self._queues), default=NEVER_MS)
            return []
        free.sort(key=lambda queue: (self._ready_at_ms(queue) > now_ms, queue.batches[0].created_ms))
        entries: list[Entry] = []
        room = self._settings.request_bytes - FRAME_OVERHEAD_BYTES
        timers_left = SDK_REQUEST_TIMERS_MAX
        for queue in free[:REQUEST_PARTITIONS_MAX]:
            if queue.timer is not None and not timers_left:
                continue
            timers_left -= queue.timer is not None
            room = min(room, queue.topic.paced_bytes or room) - entry_overhead(queue)
            batches = queue.sent_before() or that_fit(queue, room, is_first=not entries)
            size = sum(batch.size_bytes for batch in batches)
            if not batches or (entries and size > room):
                break
            room -= size
            if self._settings.is_idempotent and not queue.sent_together and queue.timer is None:
                self._number(queue, batches)
            for _ in batches:
                queue.batches.popleft()
            queue.in_flight = tuple(batches)
            queue.sent_ms = now_ms if queue.sent_ms is None else queue.sent_ms
            close_delayed(queue)  # another batch would change what its timer has
            self._in_flight[queue] = None
            if not queue.batches:
                queue.open_batch = None
                del self._queues[queue]
            entries.append(Entry(queue=queue, batches=queue.in_flight))
        return entries

    def complete(
        self, entries: Sequence[Entry], results: Sequence[int | PenstockError], now_ms: int, chance: float
    ) -> list[ProducerBatch]:
        """Take the results of a request, an offset or an error per entry; returns the batches that now have an outcome.

        A batch that can be retried goes back to the front of its partition, in order. One `chance` sets the waiting
        time of all of them, so that they travel together again.
        """
        finished: list[ProducerBatch] = []
        for entry, result in zip(entries, results, strict=True):
            entry.queue.in_flight = ()
            del self._in_flight[entry.queue]
            if isinstance(result, int):
                if self._settings.is_adaptive:
                    entry.queue.note_latency(now_ms, len(entries))
                self._delivered(entry, result)
                rest_after(self._settings.pacing, entry.queue, None, now_ms, chance)
                finished += entry.batches
            elif (writable := self._other_partitions(entry, result)) is not None:
                finished += self._keep_pinned(entry, result)
                self._refused(entry, *writable, now_ms)
            else:
                finished += self._failed(entry, result, now_ms, chance)
        self._turn_topics((entry.queue.topic for entry in entries), now_ms)
        self.wake_at_ms = now_ms
        return finished + self._sources_finished()

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Fail the batches that waited past their delivery timeout and are in no request."""
        finished: list[ProducerBatch] = []
        for queue in list(self._queues):
            while not queue.in_flight and queue.batches and queue.batches[0].deadline_ms <= now_ms:
                batches = queue.sent_before() or [queue.batches[0]]
                if queue.sent_together:
                    queue.numbering, queue.sent_together, queue.sent_ms = None, 0, None
                for batch in batches:
                    queue.batches.popleft()
                    self._finish(batch, timed_out(batch, None, now_ms))
                finished += batches
            self._forget_if_empty(queue)
        return finished + self._sources_finished()

    def abandon(self, error: PenstockError) -> list[ProducerBatch]:
        """Fail the batches that are in no request. A batch in a request gets no other try. No appends after this."""
        self._is_abandoned = True
        finished: list[ProducerBatch] = []
        for queue in list(self._queues):
            for batch in queue.batches:
                self._finish(batch, final_error(batch, error))
            finished += queue.batches
            queue.batches.clear()
            self._forget_if_empty(queue)
        return finished + self._sources_finished()

    def unfinished(self) -> list[ProducerBatch]:
        """The batches without an outcome, in requests or not."""
        in_flight = [batch for queue in self._in_flight for batch in queue.in_flight]
        return in_flight + [batch for queue in self._queues for batch in queue.batches]

    def _ready_at_ms(self, queue: PartitionQueue) -> int:
        if queue.in_flight or not may_send(queue):
            return NEVER_MS
        batch = queue.batches[0]
        is_lingering = queue.open_batch is not None and len(queue.batches) == 1 and not self.flush_waiters
        ready_at_ms = batch.created_ms + self._settings.linger_ms if is_lingering else batch.created_ms
        return min(max(ready_at_ms, queue.retry_at_ms), batch.deadline_ms)

    def _number(self, queue: PartitionQueue, batches: Sequence[ProducerBatch]) -> None:
        numbering = queue.numbering
        count = sum(batch.record_count for batch in batches)
        if numbering is None or numbering.next_sequence + count - 1 > SEQUENCE_MAX:
            numbering = queue.numbering = Numbering(self._choose(PRODUCER_IDS))
        for batch in batches:
            batch.number(numbering)

    def _delivered(self, entry: Entry, base_offset: int) -> None:
        entry.queue.retry_at_ms, entry.queue.sent_ms = 0, None
        entry.queue.sent_together = 0
        for batch in entry.batches:
            self._finish(batch, base_offset)
            if base_offset >= 0:
                base_offset += batch.record_count

    def _failed(self, entry: Entry, error: PenstockError, now_ms: int, chance: float) -> list[ProducerBatch]:
        queue = entry.queue
        if error.code is ErrorCode.DUPLICATE_SEQUENCE:
            self._delivered(entry, UNKNOWN_OFFSET)
            return list(entry.batches)
        if error.code.category is Category.NOT_FOUND or error.code is ErrorCode.PARTITION_CLOSED:
            queue.topic.fresh_until_ms = 0  # the topic has changed: describe it before the next send
        for batch in entry.batches:
            batch.failures += 1
            batch.maybe_applied |= error.maybe_applied
        retry_at_ms = self._retry_at_ms(error, entry.batches[0], now_ms, chance)
        is_unknown = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE
        is_unsent = retry_at_ms is not None and not is_unknown and queue.take_back_numbers(entry.batches)
        queue.sent_together = 0 if retry_at_ms is None or is_unknown or is_unsent else len(entry.batches)
        if not queue.sent_together and not is_unsent:
            queue.numbering = None
        if retry_at_ms is None:
            queue.sent_ms = None
            is_given_up = self._settings.retry is not None and error.code.is_retriable and not self._is_abandoned
            for batch in entry.batches:
                self._finish(batch, timed_out(batch, error, now_ms) if is_given_up else final_error(batch, error))
            return list(entry.batches)
        queue.retry_at_ms = retry_at_ms
        rest_after(self._settings.pacing, queue, error, now_ms, chance)
        queue.batches.extendleft(reversed(entry.batches))
        self._queues[queue] = None
        return []

    def _retry_at_ms(self, error: PenstockError, oldest: ProducerBatch, now_ms: int, chance: float) -> int | None:
        """None to give up."""
        if self._settings.retry is None or self._is_abandoned:
            return None
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE and not error.maybe_applied:
            # The service does not know this producer, for example in a new topic of the name, or another one has
            # written under its id: it has no such record.
            return now_ms
        return self._settings.retry.retry_at_ms(
            error, failures=oldest.failures, now_ms=now_ms, deadline_ms=oldest.deadline_ms, chance=chance
        )

    def _other_partitions(self, entry: Entry, error: PenstockError) -> tuple[int, int] | None:
        """The first partition and the number of those that take the records of the entry. None to leave them."""
        if self._is_abandoned or self._settings.retry is None:
            return None
        return writable_after(entry.batches, error)

    def _keep_pinned(self, entry: Entry, error: PenstockError) -> list[ProducerBatch]:
        """The batches of a closed partition that the application has named fail: they do not move."""
        pinned = [batch for batch in entry.batches if batch.is_pinned]
        for batch in pinned:
            self._finish(batch, final_error(batch, error))
        return pinned

    def _refused(self, entry: Entry, first: int, partitions: int, now_ms: int) -> None:
        """The partition of the entry is closed, and has stored none of its records: they move, now or at the turn.

        Delayed records move at once: their order is that of their times.
        """
        queue, topic = entry.queue, entry.queue.topic
        moving = [batch for batch in entry.batches if not batch.is_pinned]
        queue.numbering, queue.sent_together, queue.retry_at_ms, queue.sent_ms = None, 0, 0, None
        topic.fresh_until_ms = 0  # describe it before the next send
        if first > topic.first:
            topic.await_turn(*max((first, partitions), topic.coming or (0, 0)))
        elif first == topic.first and topic.coming is None:
            topic.turn(first, partitions)
        if first > topic.first and queue.timer is None:
            queue.batches.extendleft(reversed(moving))
            if queue.batches:
                self._queues[queue] = None
        else:
            self._move(topic, moving, now_ms)

    def _turn_topics(self, topics: Iterable[TopicQueues], now_ms: int) -> None:
        """Moves the records of topics that may turn, in the order in which they wait."""
        for topic in dict.fromkeys(topics):
            old = records_to_turn(topic)
            if old is None or topic.coming is None:
                continue
            topic.turn(*topic.coming)
            for queue, moving in old:
                queue.open_batch = None
                for batch in moving:
                    queue.batches.remove(batch)
                self._forget_if_empty(queue)
                self._move(topic, moving, now_ms)

    def _move(self, topic: TopicQueues, batches: Iterable[ProducerBatch], now_ms: int) -> None:
        """Append the records of the batches again, to partitions that take them. The service has stored none.

        They share no batch with other records, whose time ends later.
        """
        for batch in batches:
            self.buffered_bytes -= batch.buffered_bytes
            batch.buffered_bytes = 0
            place_of = places_after(topic, batch.timer, self._choose, self._settings.partitioner)
            self._seal(topic, now_ms)
            self._moved.move(batch, partial(self._add_again, topic, batch.timer, place_of, now_ms))
        self._seal(topic, now_ms)

    def _seal(self, topic: TopicQueues, now_ms: int) -> None:
        for queue in self._queues:
            if queue.topic is topic and queue.open_batch is not None:
                queue.open_batch = None
                self.wake_at_ms = now_ms  # a sealed batch need not linger

    def _add_again(
        self, topic: TopicQueues, timer: Timer | None, place_of: KeyPlacement, now_ms: int, record: Record
    ) -> ProducerBatch:
        size = record_size(record.key, record.value, record.headers)
        fields = (record.key, record.value, record.headers, record.timestamp)
        return self._add(topic, place_of(record.key), *fields, now_ms, timer, size)

    def _sources_finished(self) -> list[ProducerBatch]:
        finished, self._finished_sources = self._finished_sources, []
        return finished

    def _finish(self, batch: ProducerBatch, outcome: int | PenstockError) -> None:
        batch.outcome = outcome
        self.buffered_bytes -= batch.buffered_bytes
        for source in self._moved.finish(batch):
            self._finish(source, UNKNOWN_OFFSET)
            self._finished_sources.append(source)

    def _forget_if_empty(self, queue: PartitionQueue) -> None:
        if not queue.batches:
            queue.open_batch = None
            close_delayed(queue)
            self._queues.pop(queue, None)


def timed_out(batch: ProducerBatch, error: PenstockError | None, now_ms: int) -> PenstockError:
    """The error of a batch whose time to be delivered is over, with the last error that it met."""
    last = f"; the last error: {error}" if error else ""
    failure = DeliveryTimeoutError(
        f"{batch.record_count:,} records for {batch.topic}[{batch.partition}] were not delivered in "
        f"{now_ms - batch.created_ms:,} ms and {batch.failures} failed tries{last}",
        maybe_applied=batch.maybe_applied,
    )
    failure.__cause__ = error
    return failure


def final_error(batch: ProducerBatch, error: PenstockError) -> PenstockError:
    """The error of a batch that gets no other try. An earlier try may have been applied, though the last was not."""
    return as_maybe_applied(error) if batch.maybe_applied else error
