"""The producer's state: batches on their way, queued by partition and topic. accumulator.py moves them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import or_
from typing import TYPE_CHECKING, Any

from penstock.producer.delays import Timer
from penstock.producer.key_hashing import StickyPartition
from penstock_core.errors import PenstockError
from penstock_core.filters.filter import tags_of
from penstock_core.limits import SDK_SPAN_LINKS_MAX
from penstock_core.records.codec import BatchBuilder, Headers
from penstock_core.records.expiry import has_expiry
from penstock_core.records.record_batch import BATCH_HEADER_BYTES

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


@dataclass(slots=True)
class Numbering:
    """A producer id in one partition, and the number of its next record there."""

    producer_id: int
    producer_epoch: int = 0
    next_sequence: int = 0


class ProducerBatch:
    """Records of one partition on their way.

    `outcome` is None, then the offset of the first record (-1 if it will not be known) or the error. `followers`
    belongs to the driver: the futures and callbacks that wait for the outcome. `tag_filter` is None if the topic did
    not ask for one when the batch was opened. `may_expire`: a record has the header of an expiry. `timer` is that of
    delayed records. `origins` are contexts of traces that the records belong to.

    If the partition was closed, the records go on in other batches: `places` has, for each record, its batch and its
    index there. `outcome` is set once all of those have theirs. A batch `is_pinned` if the application has named the
    partition of one of its records.
    """

    __slots__ = (
        "_data",
        "_numbers",
        "buffered_bytes",
        "builder",
        "created_ms",
        "deadline_ms",
        "failures",
        "followers",
        "is_pinned",
        "may_expire",
        "maybe_applied",
        "origins",
        "outcome",
        "partition",
        "places",
        "record_count",
        "tag_filter",
        "timer",
        "topic",
    )

    def __init__(self, topic: str, partition: int, builder: BatchBuilder, created_ms: int, deadline_ms: int):
        self.timer: Timer | None = None
        self.topic = topic
        self.partition = partition
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.record_count = 0
        self.buffered_bytes = 0
        self.failures = 0
        self.maybe_applied = False
        self.outcome: int | PenstockError | None = None
        self.followers: list[Any] = []
        self.builder = builder
        self.origins: list[SpanContext] = []
        self.is_pinned = False
        self.places: Sequence[tuple[ProducerBatch, int]] | None = None
        self.tag_filter: int | None = None
        self.may_expire = False
        self._data: bytes | None = None
        self._numbers: dict[str, int] = {}

    def place_of(self, index: int) -> "tuple[ProducerBatch, int]":
        """The batch that a record of this one is in now, and its index there."""
        batch = self
        while batch.places is not None:
            batch, index = batch.places[index]
        return batch, index

    @property
    def size_bytes(self) -> int:
        """The size of the batch before compression, which can only make it smaller."""
        return self.builder.size_bytes

    def note_headers(self, headers: Headers) -> None:
        """Note if a record that was appended may expire, and count its tags, if the topic asks for them."""
        if not headers:
            return
        if self.tag_filter is not None:
            self.tag_filter |= tags_of(headers)
        if not self.may_expire:
            self.may_expire = has_expiry(headers)

    def note_origin(self, origin: "SpanContext") -> None:
        """A record belongs to a trace. The batch remembers `SDK_SPAN_LINKS_MAX` traces."""
        if origin not in self.origins[-1:] and len(self.origins) < SDK_SPAN_LINKS_MAX:
            self.origins.append(origin)

    def number(self, numbering: Numbering) -> None:
        """Give these records the next numbers of `numbering`."""
        self._numbers = {
            "producer_id": numbering.producer_id,
            "producer_epoch": numbering.producer_epoch,
            "base_sequence": numbering.next_sequence,
        }
        self._data = None
        numbering.next_sequence += self.record_count

    def build(self) -> bytes:
        """The batch's bytes, compressed; the same until it is numbered anew.

        It is slow. Do not call it under the driver's lock.
        """
        if self._data is None:
            self._data = self.builder.build(**self._numbers)
        return self._data

    def release(self) -> None:
        """Give back the bytes. The batch is staged, so the producer adds nothing to it and does not send it again."""
        self._data = None
        del self.builder


def entry_fields(topic: str, partition: int, batches: Sequence[ProducerBatch]) -> dict[str, object]:
    """The entry of a frame's header for these batches of one partition. Builds those that are not built yet."""
    fields = {"topic": topic, "partition": partition, "length": sum(len(batch.build()) for batch in batches)}
    bits, timer = tag_filter_of(batches), batches[0].timer
    return {
        **fields,
        **({} if bits is None else {"tag_filter": f"{bits:016x}"}),
        **({"may_expire": True} if any(batch.may_expire for batch in batches) else {}),
        **({} if timer is None else timer.fields()),
    }


def tag_filter_of(batches: Sequence[ProducerBatch]) -> int | None:
    """The tag filter of all batches together, None if one of them has none."""
    known = [batch.tag_filter for batch in batches if batch.tag_filter is not None]
    return reduce(or_, known) if len(known) == len(batches) else None


class PartitionQueue:
    """The batches of one partition, oldest first: those in a request, then those that wait.

    The `open_batch` takes more records. If there is one, it is the last batch. The first `sent_together` of the waiting
    batches were sent before, in one request, and may be stored. They go again in the same company, and share their
    fate. `numbering` is None until a batch is numbered, and again after a numbered batch has failed. `sent_ms` is when
    the oldest batch was sent first, None if none was. `rest_ms` is how long the partition rests between requests
    (pacing.py).

    Delayed records have a queue of their own for each `timer`. It gets one batch, and no other after that has left.
    """

    __slots__ = (
        "batches",
        "in_flight",
        "numbering",
        "open_batch",
        "partition",
        "rest_ms",
        "retry_at_ms",
        "sent_ms",
        "sent_together",
        "timer",
        "topic",
    )

    def __init__(self, topic: "TopicQueues", partition: int, timer: Timer | None = None) -> None:
        self.timer = timer
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.open_batch: ProducerBatch | None = None
        self.in_flight: tuple[ProducerBatch, ...] = ()
        self.retry_at_ms = 0
        self.rest_ms = 0
        self.sent_ms: int | None = None
        self.sent_together = 0
        self.numbering: Numbering | None = None

    def sent_before(self) -> list[ProducerBatch]:
        """The batches that go again in the same company."""
        return list(islice(self.batches, self.sent_together))

    def note_latency(self, now_ms: int, entries: int) -> None:
        """Tell the topic how long delivery took, retries included, in a request of so many partitions."""
        if self.sent_ms is not None and self.topic.takes(self.partition):
            self.topic.sticky.note_latency(self.partition - self.topic.first, now_ms - self.sent_ms, entries)

    def take_back_numbers(self, batches: Sequence[ProducerBatch]) -> bool:
        """True if the service surely stored none of these batches: their numbers are free, and they need no company.

        A delayed batch stays as it is: its queue takes no other.
        """
        if self.timer is not None or any(batch.maybe_applied for batch in batches):
            return False
        if self.numbering is not None:
            self.numbering.next_sequence -= sum(batch.record_count for batch in batches)
        return True


class TopicQueues:
    """A topic as the producer knows it. Records without a key go to the partition that `sticky` says.

    `partitions` partitions take records, from `first` on. While the topic turns (moved_batches.py), `coming` has the
    first partition and the number of those that take records next.

    `fresh_until_ms` says how long the description serves to open batches. It is 0 once the service has shown that the
    topic has changed: then the producer describes it before the next record.

    `delayed` has the queues of delayed records that take more, by partition (-1 for records without a key) and due
    time.
    """

    __slots__ = (
        "batch_bytes",
        "batch_bytes_max",
        "coming",
        "delayed",
        "first",
        "fresh_until_ms",
        "has_tags",
        "is_compacted",
        "name",
        "paced_bytes",
        "paced_until_ms",
        "partitions",
        "queues",
        "record_bytes_max",
        "sticky",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.batch_bytes = 0
        self.batch_bytes_max = 0
        self.paced_bytes = 0  # of a request and of a batch, while a quota holds the topic up; 0 for no such bound
        self.paced_until_ms = 0
        self.record_bytes_max = 0
        self.fresh_until_ms = 0
        self.first = 0
        self.partitions = 0
        self.coming: tuple[int, int] | None = None
        self.queues: list[PartitionQueue] = []  # more than `partitions` after the topic was made anew with fewer
        self.sticky = StickyPartition()
        self.is_compacted = False
        self.has_tags = False  # the topic wants the tag filter of each batch
        self.delayed: dict[tuple[int, int], PartitionQueue] = {}

    @property
    def is_idle(self) -> bool:
        """No batch of the topic waits or is in a request."""
        return not self.delayed and not any(queue.batches or queue.in_flight for queue in self.queues)

    def writable_queues(self) -> "list[PartitionQueue]":
        """The queues of the partitions that take records."""
        return self.queues[self.first : self.first + self.partitions]

    def takes(self, partition: int) -> bool:
        """True if the partition takes records, by what the producer knows."""
        return self.first <= partition < self.first + self.partitions

    def may_take(self, partition: int) -> bool:
        """True if you may name the partition: it takes records now, or once the topic has turned."""
        first, partitions = self.newest
        return self.takes(partition) or first <= partition < first + partitions

    @property
    def newest(self) -> tuple[int, int]:
        """The first partition and the number of those that take records, or will once the topic has turned."""
        return self.coming or (self.first, self.partitions)

    def update(self, partitions: int, batch_bytes: int, batch_bytes_max: int, first: int = 0) -> None:
        """Take a description of the topic. If its partitions are new ones, it turns to them once that keeps order."""
        self.batch_bytes = min(batch_bytes, batch_bytes_max, self.paced_bytes or batch_bytes)
        self.batch_bytes_max = batch_bytes_max
        self.record_bytes_max = batch_bytes_max - BATCH_HEADER_BYTES
        if first > self.first and any(queue.batches or queue.in_flight for queue in self.queues):
            self.await_turn(first, partitions)
        else:
            self.turn(first, partitions)

    def await_turn(self, first: int, partitions: int) -> None:
        """Records without a key, and keys, go to these partitions once that keeps order (moved_batches.py)."""
        self.coming = first, partitions
        self._extend(first + partitions)

    def turn(self, first: int, partitions: int) -> None:
        """From now on records go to these partitions."""
        if (self.first, self.partitions) != (first, partitions):
            self.sticky = StickyPartition()
        self.first, self.partitions, self.coming = first, partitions, None
        self._extend(first + partitions)

    def _extend(self, end: int) -> None:
        self.queues += [PartitionQueue(self, each) for each in range(len(self.queues), end)]
