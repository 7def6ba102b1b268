"""What the producer decides: which batch a record joins, what goes into the next request, what is sent again.

No I/O, no threads, no clock: times (milliseconds of one monotonic clock) and chance are arguments. A thread or a
task drives it (sender.py, async_sender.py).

    append -> PartitionQueue: [sealed batch, sealed batch, open batch] -> drain -> request -> complete
                    ^--------------- retriable: back to the front, in order ----------------'

Invariants:
- A partition is in at most one request at a time, and its batches leave in order: a retry never reorders.
- Every appended record's batch gets exactly one outcome, by `complete`, `expire` or `abandon`.
- `buffered_bytes` counts the batches without an outcome, and does not exceed `buffer_bytes`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import DeliveryTimeoutError, RecordTooLargeError, as_maybe_applied
from penstock.producer_batch import PartitionQueue, ProducerBatch, TopicQueues
from penstock.retry import NEVER_MS, RetryPolicy
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.limits import REQUEST_PARTITIONS_MAX
from penstock_core.record_batch import BATCH_HEADER_BYTES, Compression
from penstock_core.records import BatchBuilder, Headers

RECORD_OVERHEAD_BYTES = 36  # its varints at their longest
ENTRY_OVERHEAD_BYTES = 80  # one entry of the frame's JSON header, without the topic's name
FRAME_OVERHEAD_BYTES = 64  # length, acks and brackets of the frame


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """Bounds of batching. Bytes are counted before compression."""

    linger_ms: int
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    compression: Compression
    retry: RetryPolicy | None  # None: one try


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition's part of a request."""

    queue: PartitionQueue
    batches: tuple[ProducerBatch, ...]


class Accumulator:
    """The batches of a producer. `choose(n)` picks one of n, for records without key."""

    def __init__(self, settings: AccumulatorSettings, choose: Callable[[int], int]) -> None:
        self._settings = settings
        self._choose = choose
        self._queues: dict[PartitionQueue, None] = {}  # those with batches that wait, in order of their oldest
        self._in_flight: dict[PartitionQueue, None] = {}  # those with batches in a request
        self._is_abandoned = False
        self.buffered_bytes = 0
        self.wake_at_ms = NEVER_MS  # when `drain` may next have something; `complete` may bring it forward
        self.hurry = 0  # above zero: do not linger (somebody flushes or waits for memory)

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
    ) -> ProducerBatch | None:
        """Add a record to a partition, or to the sticky one; it is the batch's last (`record_count` - 1).

        None if the memory is full: nothing was changed. Raises RecordTooLargeError, and INVALID_REQUEST for values of
        a wrong type.
        """
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(len(name) * 4 + len(content or b"") + 10 for name, content in headers)
        if size > topic.batch_bytes_max - BATCH_HEADER_BYTES:
            raise _too_large(topic, size)
        if self.buffered_bytes + size > self._settings.buffer_bytes and self.buffered_bytes:
            return None
        queue = topic.queues[partition] if partition is not None else self._sticky(topic)
        if queue.is_open:
            batch = queue.batches[-1]
            if batch.builder.append(timestamp_ms, key, value, headers):
                batch.record_count += 1
                batch.buffered_bytes += size
                self.buffered_bytes += size
                return batch
            queue.is_open = False
            self.wake_at_ms = now_ms  # a sealed batch need not linger
            if partition is None:
                queue = self._sticky(topic)
        builder = BatchBuilder(self._settings.compression, batch_bytes=topic.batch_bytes)
        builder.append(timestamp_ms, key, value, headers)  # raises INVALID_REQUEST before anything is changed
        batch = self._open_batch(queue, builder, now_ms)
        batch.record_count = 1
        batch.buffered_bytes = size
        self.buffered_bytes += size
        return batch

    def drain(self, now_ms: int) -> list[Entry]:
        """The next request, or nothing until `wake_at_ms`.

        A request goes out when one partition's oldest batch is full or has lingered; whatever else waits goes with
        it, since a request costs the same with more in it. Oldest first, and of each partition as much as fits.
        """
        free = [queue for queue in self._queues if not queue.in_flight and queue.retry_at_ms <= now_ms]
        if not any(self._ready_at_ms(queue) <= now_ms for queue in free):
            self.wake_at_ms = min(map(self._ready_at_ms, self._queues), default=NEVER_MS)
            return []
        free.sort(key=lambda queue: (self._ready_at_ms(queue) > now_ms, queue.batches[0].created_ms))
        entries: list[Entry] = []
        room = self._settings.request_bytes - FRAME_OVERHEAD_BYTES
        for queue in free[:REQUEST_PARTITIONS_MAX]:
            room -= ENTRY_OVERHEAD_BYTES + len(queue.topic.name)
            batches: list[ProducerBatch] = []
            while queue.batches and (queue.batches[0].size_bytes <= room or not (entries or batches)):
                room -= queue.batches[0].size_bytes
                batches.append(queue.batches.popleft())
            if not batches:
                break
            queue.in_flight = tuple(batches)
            self._in_flight[queue] = None
            queue.is_open = queue.is_open and bool(queue.batches)
            if not queue.batches:
                del self._queues[queue]
            entries.append(Entry(queue=queue, batches=queue.in_flight))
        return entries

    def complete(
        self, entries: Sequence[Entry], results: Sequence[int | PenstockError], now_ms: int, chance: float
    ) -> list[ProducerBatch]:
        """Take a request's results, an offset or an error per entry; the batches that now have an outcome.

        What can be retried goes back to the front of its partition, in order, to wait for its time (one `chance`
        for all, so that they travel together again).
        """
        finished: list[ProducerBatch] = []
        for entry, result in zip(entries, results, strict=True):
            entry.queue.in_flight = ()
            del self._in_flight[entry.queue]
            if isinstance(result, int):
                self._delivered(entry, result)
                finished += entry.batches
            else:
                finished += self._failed(entry, result, now_ms, chance)
        self.wake_at_ms = now_ms
        return finished

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Fail what has waited past its delivery timeout and is in no request."""
        finished: list[ProducerBatch] = []
        for queue in list(self._queues):
            while not queue.in_flight and queue.batches and queue.batches[0].deadline_ms <= now_ms:
                batch = queue.batches.popleft()
                self._finish(batch, _timed_out(batch, None, now_ms))
                finished.append(batch)
            self._forget_if_empty(queue)
        return finished

    def abandon(self, error: PenstockError) -> list[ProducerBatch]:
        """Fail what is in no request; what is in one is not tried again. No appends after this."""
        self._is_abandoned = True
        finished: list[ProducerBatch] = []
        for queue in list(self._queues):
            for batch in queue.batches:
                self._finish(batch, _final(batch, error))
            finished += queue.batches
            queue.batches.clear()
            self._forget_if_empty(queue)
        return finished

    def unfinished(self) -> list[ProducerBatch]:
        """The batches without an outcome, in requests or not."""
        in_flight = [batch for queue in self._in_flight for batch in queue.in_flight]
        return in_flight + [batch for queue in self._queues for batch in queue.batches]

    def _sticky(self, topic: TopicQueues) -> PartitionQueue:
        queue = topic.sticky
        if queue is None or not queue.is_open:
            count = topic.partitions
            start = self._choose(count)
            cycle = (topic.queues[(start + step) % count] for step in range(count))
            queue = next((each for each in cycle if not each.in_flight), topic.queues[start])
            topic.sticky = queue
        return queue

    def _open_batch(self, queue: PartitionQueue, builder: BatchBuilder, now_ms: int) -> ProducerBatch:
        deadline_ms = now_ms + self._settings.delivery_timeout_ms
        batch = ProducerBatch(queue.topic.name, queue.partition, builder, now_ms, deadline_ms)
        queue.batches.append(batch)
        queue.is_open = True
        self._queues[queue] = None
        self.wake_at_ms = min(self.wake_at_ms, now_ms if self.hurry else now_ms + self._settings.linger_ms)
        return batch

    def _ready_at_ms(self, queue: PartitionQueue) -> int:
        if queue.in_flight:
            return NEVER_MS
        batch = queue.batches[0]
        is_lingering = queue.is_open and len(queue.batches) == 1 and not self.hurry
        ready_at_ms = batch.created_ms + self._settings.linger_ms if is_lingering else batch.created_ms
        return min(max(ready_at_ms, queue.retry_at_ms), batch.deadline_ms)

    def _delivered(self, entry: Entry, base_offset: int) -> None:
        entry.queue.retry_at_ms = 0
        for batch in entry.batches:
            self._finish(batch, base_offset)
            if base_offset >= 0:
                base_offset += batch.record_count

    def _failed(self, entry: Entry, error: PenstockError, now_ms: int, chance: float) -> list[ProducerBatch]:
        if error.code.category is Category.NOT_FOUND:
            entry.queue.topic.fresh_until_ms = 0  # the topic is not what it was: ask before the next send
        finished: list[ProducerBatch] = []
        again: list[ProducerBatch] = []
        retry = None if self._is_abandoned else self._settings.retry
        for batch in entry.batches:
            batch.failures += 1
            batch.maybe_applied |= error.maybe_applied
            if retry is None or not error.code.is_retriable:
                self._finish(batch, _final(batch, error))
                finished.append(batch)
                continue
            retry_at_ms = retry.retry_at_ms(
                error, failures=batch.failures, now_ms=now_ms, deadline_ms=batch.deadline_ms, chance=chance
            )
            if retry_at_ms is None:
                self._finish(batch, _timed_out(batch, error, now_ms))
                finished.append(batch)
            else:
                entry.queue.retry_at_ms = retry_at_ms
                again.append(batch)
        if again:
            entry.queue.batches.extendleft(reversed(again))
            self._queues[entry.queue] = None
        return finished

    def _finish(self, batch: ProducerBatch, outcome: int | PenstockError) -> None:
        batch.outcome = outcome
        self.buffered_bytes -= batch.buffered_bytes

    def _forget_if_empty(self, queue: PartitionQueue) -> None:
        if not queue.batches:
            queue.is_open = False
            self._queues.pop(queue, None)


def _too_large(topic: TopicQueues, size: int) -> PenstockError:
    return RecordTooLargeError(
        ErrorCode.RECORD_TOO_LARGE,
        f"a record of about {size:,} bytes for topic {topic.name!r}, whose max_batch_bytes is "
        f"{topic.batch_bytes_max:,}: store the payload elsewhere and send its address, or raise the topic's setting",
        limit=topic.batch_bytes_max,
    )


def _timed_out(batch: ProducerBatch, error: PenstockError | None, now_ms: int) -> PenstockError:
    last = f"; the last error: {error}" if error else ""
    timed_out = DeliveryTimeoutError(
        f"{batch.record_count:,} records for {batch.topic}[{batch.partition}] were not delivered in "
        f"{now_ms - batch.created_ms:,} ms and {batch.failures} failed tries{last}",
        maybe_applied=batch.maybe_applied,
    )
    timed_out.__cause__ = error
    return timed_out


def _final(batch: ProducerBatch, error: PenstockError) -> PenstockError:
    # An earlier try of this batch may have been applied, though the last one was not.
    return as_maybe_applied(error) if batch.maybe_applied else error
