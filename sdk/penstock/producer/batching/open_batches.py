"""The batches that records join: which batch a record comes into, and when one is opened.

    join: the record's partition has an open batch with room | append: else one is opened

No I/O, no threads, no clock. accumulator.py sends the batches. Nearly every record joins, so `join` does only what each
record needs; what a batch needs is done when it is opened.
"""

from collections.abc import Callable

from penstock.producer.batching.pacing import (
    RECORD_OVERHEAD_BYTES,
    AccumulatorSettings,
    headers_size,
    record_size,
    too_large,
)
from penstock.producer.batching.producer_batch import PartitionQueue, ProducerBatch, TopicQueues
from penstock.producer.delays import Timer
from penstock.retry import NEVER_MS
from penstock_core.records.codec import BatchBuilder, Headers


class OpenBatches:
    """The batches that wait, by partition. `choose(n)` picks one of n."""

    def __init__(self, settings: AccumulatorSettings, choose: Callable[[int], int]) -> None:
        self._settings = settings
        self._buffer_bytes = settings.buffer_bytes
        self._choose = choose
        self._queues: dict[PartitionQueue, None] = {}  # with batches that wait, in order of the oldest batch
        self.buffered_bytes = 0
        self.wake_at_ms = NEVER_MS  # when `drain` may have a request; `complete` may bring it forward
        self.flush_waiters = 0  # callers that flush or wait for memory: while there is one, no batch lingers

    def join(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> ProducerBatch | None:
        """Add a record to the open batch of its partition, or of the sticky one, and return the batch.

        None if no open batch takes it; the call changed nothing then, and `append` finds the record its batch, or the
        error. Almost every record joins, so this does nothing that can be done once per batch. Raises INVALID_REQUEST
        for values of a wrong type.
        """
        size = RECORD_OVERHEAD_BYTES if value is None else RECORD_OVERHEAD_BYTES + len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += headers_size(headers)
        if partition is None:
            sticky = topic.sticky
            if sticky.left_bytes <= 0:
                return None
            batch = topic.queues[topic.first + sticky.partition].open_batch
        else:
            batch = topic.queues[partition].open_batch
        buffered_bytes = self.buffered_bytes + size
        if batch is None or buffered_bytes > self._buffer_bytes or size > topic.record_bytes_max:
            return None
        if not batch.builder.append(timestamp_ms, key, value, headers):
            return None
        if partition is None:
            sticky.left_bytes -= size
        if headers:
            batch.note_headers(headers)
        batch.record_count += 1
        batch.buffered_bytes += size
        self.buffered_bytes = buffered_bytes
        return batch

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
        timer: Timer | None = None,
    ) -> ProducerBatch | None:
        """Add a record to its partition, or to the sticky one, and return its batch, of which it is the last record.

        A record with a `timer` joins those of its partition and due time.

        None if the memory is full; the call changed nothing then. Raises RecordTooLargeError, and INVALID_REQUEST for
        values of a wrong type.
        """
        size = record_size(key, value, headers)
        if size > topic.record_bytes_max:
            raise too_large(topic, size)
        if self.buffered_bytes + size > self._buffer_bytes and self.buffered_bytes:
            return None
        return self._add(topic, partition, key, value, headers, timestamp_ms, now_ms, timer, size)

    def _add(  # noqa: PLR0913 - as `append`
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
        timer: Timer | None,
        size: int,
    ) -> ProducerBatch:
        if timer is not None:
            queue = delayed_queue(topic, partition, timer, self._choose)
        else:
            queue = topic.queues[partition] if partition is not None else self._sticky(topic, size)
        batch = queue.open_batch
        if batch is not None:
            if batch.builder.append(timestamp_ms, key, value, headers):
                batch.note_headers(headers)
                batch.record_count += 1
                batch.buffered_bytes += size
                self.buffered_bytes += size
                return batch
            queue.open_batch = None
            self.wake_at_ms = now_ms  # a sealed batch need not linger
            if timer is not None:
                queue = delayed_queue(topic, partition, timer, self._choose)
            elif partition is None:
                queue = self._sticky(topic, size)
        builder = BatchBuilder(self._settings.compression, batch_bytes=topic.batch_bytes)
        builder.append(timestamp_ms, key, value, headers)  # raises INVALID_REQUEST before it changes anything
        batch = self._open_batch(queue, builder, now_ms)
        batch.note_headers(headers)
        share_delayed(queue, partition)
        batch.record_count = 1
        batch.buffered_bytes = size
        self.buffered_bytes += size
        return batch

    def _sticky(self, topic: TopicQueues, size: int) -> PartitionQueue:
        sticky = topic.sticky
        queue = topic.queues[topic.first + sticky.partition]
        if sticky.left_bytes <= 0 or queue.open_batch is None:
            is_busy = [self._is_busy(each) for each in topic.writable_queues()]
            queue = topic.queues[topic.first + sticky.move(is_busy, topic.batch_bytes, self._choose)]
        sticky.left_bytes -= size
        return queue

    def _is_busy(self, queue: PartitionQueue) -> bool:
        """True if a request has batches of the partition, or if the partition waits to try again."""
        return bool(queue.in_flight) or (self._settings.is_adaptive and queue.sent_ms is not None)

    def _open_batch(self, queue: PartitionQueue, builder: BatchBuilder, now_ms: int) -> ProducerBatch:
        deadline_ms = now_ms + self._settings.delivery_timeout_ms
        batch = ProducerBatch(queue.topic.name, queue.partition, builder, now_ms, deadline_ms)
        batch.tag_filter = 0 if queue.topic.has_tags else None
        batch.timer = queue.timer
        queue.batches.append(batch)
        queue.open_batch = batch
        self._queues[queue] = None
        self.wake_at_ms = min(self.wake_at_ms, now_ms if self.flush_waiters else now_ms + self._settings.linger_ms)
        return batch


def delayed_queue(
    topic: TopicQueues, partition: int | None, timer: Timer, choose: Callable[[int], int]
) -> PartitionQueue:
    """The queue of the record's partition and due time if it takes more, else a new one under the record's timer.

    A cancellable record is alone. It closes the open queue, so that later records come behind it.
    """
    queue = topic.delayed.get(_place(partition, timer))
    if queue is not None and queue.open_batch is not None and not timer.is_cancellable:
        return queue
    if queue is not None:
        close_delayed(queue)
    if partition is None:
        partition = topic.first + choose(topic.partitions)
    return PartitionQueue(topic, partition, timer)


def share_delayed(queue: PartitionQueue, partition: int | None) -> None:
    """Lets later records of the queue's partition (None for records without a key) and due time join it."""
    if queue.timer is not None and not queue.timer.is_cancellable:
        queue.topic.delayed[_place(partition, queue.timer)] = queue


def close_delayed(queue: PartitionQueue) -> None:
    """Lets no other record join a queue of delayed records."""
    if queue.timer is None:
        return
    queue.open_batch = None
    for place in ((queue.partition, queue.timer.deliver_at_ms), (-1, queue.timer.deliver_at_ms)):
        if queue.topic.delayed.get(place) is queue:
            del queue.topic.delayed[place]


def _place(partition: int | None, timer: Timer) -> tuple[int, int]:
    return (-1 if partition is None else partition, timer.deliver_at_ms)
