"""The producer's state: batches on their way, queued by partition and topic. accumulator.py moves them."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.records import BatchBuilder


@dataclass(slots=True)
class Numbering:
    """Who the producer is to one partition, and how it numbers its next record there."""

    producer_id: int
    producer_epoch: int = 0
    next_sequence: int = 0


class ProducerBatch:
    """Records of one partition on their way.

    `outcome` is None, then the first record's offset (-1 if it will not be known) or the error.
    `followers` belongs to the driver: who wants to hear of the outcome.
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
        "maybe_applied",
        "outcome",
        "partition",
        "record_count",
        "topic",
    )

    def __init__(self, topic: str, partition: int, builder: BatchBuilder, created_ms: int, deadline_ms: int):
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
        self._data: bytes | None = None
        self._numbers: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        """Of the batch as it is; compression can only make it smaller."""
        return self.builder.size_bytes

    def number(self, numbering: Numbering) -> None:
        """Make these records the next that `numbering` numbers."""
        self._numbers = {
            "producer_id": numbering.producer_id,
            "producer_epoch": numbering.producer_epoch,
            "base_sequence": numbering.next_sequence,
        }
        self._data = None
        numbering.next_sequence += self.record_count

    def build(self) -> bytes:
        """The batch's bytes, compressed; the same until it is numbered anew. Not under the driver's lock: it takes its
        time."""
        if self._data is None:
            self._data = self.builder.build(**self._numbers)
        return self._data

    def let_go(self) -> None:
        """Give back its bytes: they are staged, and nothing is added or sent again."""
        self._data = None
        del self.builder


class PartitionQueue:
    """The batches of one partition, oldest first: those in a request, then those that wait.

    Only the last may be open, that is, still take records. The first `sent_together` of those that wait have been sent
    before, in one request: they go again as they went, and share their fate. `numbering` is None until a batch is
    numbered, and again when a numbered one has failed.
    """

    __slots__ = (
        "batches",
        "in_flight",
        "is_open",
        "numbering",
        "partition",
        "retry_at_ms",
        "sent_together",
        "topic",
    )

    def __init__(self, topic: "TopicQueues", partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.is_open = False
        self.in_flight: tuple[ProducerBatch, ...] = ()
        self.retry_at_ms = 0
        self.sent_together = 0
        self.numbering: Numbering | None = None


class TopicQueues:
    """A topic as the producer knows it. Records without key stick to `sticky` until its batch is sealed (KIP-480)."""

    __slots__ = ("batch_bytes", "batch_bytes_max", "fresh_until_ms", "name", "partitions", "queues", "sticky")

    def __init__(self, name: str) -> None:
        self.name = name
        self.batch_bytes = 0
        self.batch_bytes_max = 0
        self.fresh_until_ms = 0  # when the description is to be asked for again
        self.partitions = 0
        self.queues: list[PartitionQueue] = []  # more than `partitions` after the topic was made anew with fewer
        self.sticky: PartitionQueue | None = None

    def update(self, partitions: int, batch_bytes: int, batch_bytes_max: int) -> None:
        """Take a description."""
        self.partitions = partitions
        self.batch_bytes = min(batch_bytes, batch_bytes_max)
        self.batch_bytes_max = batch_bytes_max
        self.queues += [PartitionQueue(self, partition) for partition in range(len(self.queues), partitions)]
