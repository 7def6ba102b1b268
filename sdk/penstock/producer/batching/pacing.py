"""A producer stays below the limit of a hot partition: the partition rests between its requests.

A partition takes about a thousand write units a second, however many producers it has. Each THROTTLED doubles the rest,
and each delivery makes it a little shorter, so the producers of a partition share its limit without a word to each
other (as TCP does). Meanwhile records gather: the next request has more of them, and a refused one, which costs as much
as a delivered one, is rare. A partition that rests is in no request, so requests have fewer partitions, too.

A quota of bytes is another limit. Records gather while it holds the producer up, and one request with all of them would
spend the quota of minutes at once. So requests and new batches have the bytes of a second, until a minute after the
last refusal. A batch that is larger goes alone.

The bytes that records and requests are counted with, and which batches fit into a request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import RecordTooLargeError
from penstock.producer.batching.producer_batch import PartitionQueue, ProducerBatch, TopicQueues
from penstock.producer.key_hashing import Partitioner
from penstock.retry import RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB
from penstock_core.records.codec import Headers
from penstock_core.records.record_batch import Compression

RECORD_OVERHEAD_BYTES = 36  # its varints at their longest
ENTRY_OVERHEAD_BYTES = 114  # one entry of the frame's JSON header, without the topic's name
TIMER_OVERHEAD_BYTES = 90  # the due time and the id of an entry's timer
FRAME_OVERHEAD_BYTES = 64  # length, acks and brackets of the frame
QUOTA = "produce_bytes_per_s"  # Rate.PRODUCE_BYTES, whose module no client imports
_PACED_MS = 60_000
_PACED_BYTES_MIN = 4 * KIB  # else a small quota would have a request for each record


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """The shortest and the longest rest, in milliseconds. A delivery takes one part in `parts` off it."""

    first_ms: int
    most_ms: int
    parts: int

    def longer(self, rest_ms: int) -> int:
        """The rest after the service refused a request as too many."""
        return min(self.most_ms, max(self.first_ms, 2 * rest_ms))

    def shorter(self, rest_ms: int) -> int:
        """The rest after a delivery. It ends when it is shorter than half of the first one."""
        shorter_ms = rest_ms - max(1, rest_ms // self.parts)
        return shorter_ms if 2 * shorter_ms >= self.first_ms else 0


def pacing_within(backoff_max_ms: int, delivery_timeout_ms: int) -> Pacing:
    """The rests of a producer, up to twice its longest wait before a retry, and an eighth of the time a record has."""
    return Pacing(first_ms=20, most_ms=min(2 * backoff_max_ms, delivery_timeout_ms // 8), parts=16)


def rest_after(
    pacing: Pacing | None, queue: PartitionQueue, error: PenstockError | None, now_ms: int, chance: float
) -> None:
    """Sets the rest of a partition after a delivery, or after `error`, and when its next request may leave.

    The rest is drawn between half and one and a half of `rest_ms`: producers that met do not meet again.
    """
    topic = queue.topic
    if error is not None and error.facts.get("quota") == QUOTA and "limit" in error.facts:
        topic.paced_bytes, topic.paced_until_ms = max(_PACED_BYTES_MIN, error.facts["limit"]), now_ms + _PACED_MS
        topic.batch_bytes = min(topic.batch_bytes, topic.paced_bytes)
    elif topic.paced_bytes and now_ms >= topic.paced_until_ms:
        topic.paced_bytes, topic.fresh_until_ms = 0, 0  # the next description tells the usual bytes
    if pacing is None:
        return
    if error is None:
        queue.rest_ms = pacing.shorter(queue.rest_ms)
    elif error.code is ErrorCode.THROTTLED:
        queue.rest_ms = pacing.longer(queue.rest_ms)
    else:
        return
    queue.retry_at_ms = max(queue.retry_at_ms, now_ms + int(queue.rest_ms * (0.5 + chance)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """Bounds of batching. Bytes are counted before compression. Without `retry` each batch has one try."""

    linger_ms: int
    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int
    compression: Compression
    retry: RetryPolicy | None  # None: one try
    is_idempotent: bool = True
    is_adaptive: bool = False  # records without a key avoid slow partitions
    pacing: Pacing | None = None  # None: a throttled partition waits for its next try, and never rests
    partitioner: Partitioner | None = None  # for records that leave a closed partition


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
