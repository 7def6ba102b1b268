"""The bytes that records and requests are counted with, and which batches fit into a request."""

from collections.abc import Sequence

from penstock.errors import RecordTooLargeError
from penstock.producer.batching.producer_batch import PartitionQueue, ProducerBatch, TopicQueues
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import Headers

RECORD_OVERHEAD_BYTES = 36  # its varints at their longest
ENTRY_OVERHEAD_BYTES = 114  # one entry of the frame's JSON header, without the topic's name
TIMER_OVERHEAD_BYTES = 90  # the due time and the id of an entry's timer
FRAME_OVERHEAD_BYTES = 64  # length, acks and brackets of the frame


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes of a record at most."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    if headers:
        size += headers_size(headers)
    return size


def headers_size(headers: Headers) -> int:
    """The bytes of a record's headers at most."""
    return sum(len(name) * 4 + len(content or b"") + 10 for name, content in headers)


def entry_overhead(queue: PartitionQueue) -> int:
    """The bytes of a request's entry for this partition, without its batches."""
    return ENTRY_OVERHEAD_BYTES + len(queue.topic.name) + (TIMER_OVERHEAD_BYTES if queue.timer else 0)


def that_fit(queue: PartitionQueue, room: int, *, is_first: bool) -> Sequence[ProducerBatch]:
    """The oldest batches that fit into `room` bytes; if none does, the oldest where it is the request's first."""
    batches: list[ProducerBatch] = []
    for batch in queue.batches:
        room -= batch.size_bytes
        if room < 0 and (batches or not is_first):
            break
        batches.append(batch)
    return batches


def too_large(topic: TopicQueues, size: int) -> PenstockError:
    """The error for a record that no batch of the topic may hold."""
    return RecordTooLargeError(
        ErrorCode.RECORD_TOO_LARGE,
        f"a record of about {size:,} bytes for topic {topic.name!r}, whose max_batch_bytes is "
        f"{topic.batch_bytes_max:,}: store the payload elsewhere and send its address, or raise the topic's setting",
        limit=topic.batch_bytes_max,
    )
