"""Batches of a closed partition: their records go on in batches of other partitions.

A record's future and callback keep the batch that the record was appended to. That batch has its outcome once each of
the batches that took its records has one.

A topic with `ordering_on_change=wait` takes its records in new partitions after a change (docs/protocol/partitions).
There the producer keeps the order of each key: nothing goes to a new partition before all records of the old ones are
stored, or have failed, or are known not to be stored. Until then the topic *turns*: records still join the queues of
the old partitions, and these send nothing but what was sent before. Then all of them move, in their order.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.producer.batching.producer_batch import PartitionQueue, ProducerBatch, TopicQueues
from penstock.producer.delays import Timer
from penstock.producer.key_hashing import Partitioner, placed
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import Record, decode
from penstock_core.records.partitioner import partition_for_key

_log = logging.getLogger("penstock.producer")
KeyPlacement: TypeAlias = Callable[[bytes | None], int | None]


class MovedBatches:
    """The batches whose records were moved, until the batches that took these records are finished."""

    def __init__(self) -> None:
        self._sources: dict[ProducerBatch, list[ProducerBatch]] = {}
        self._open: dict[ProducerBatch, int] = {}

    def move(self, batch: ProducerBatch, add: Callable[[Record], ProducerBatch]) -> None:
        """Adds each record of the batch again. `add` returns the batch that takes a record as its last.

        No other records may be in the batches that take them: they end at the time of this batch.
        """
        places = []
        for record in decode(batch.build()):
            taker = add(record)
            taker.deadline_ms = batch.deadline_ms
            for origin in batch.origins:
                taker.note_origin(origin)
            places.append((taker, taker.record_count - 1))
        self.note(batch, places)

    def note(self, source: ProducerBatch, places: Sequence[tuple[ProducerBatch, int]]) -> None:
        """The records of `source` have moved to these places, in their order."""
        source.places = tuple(places)
        takers = dict.fromkeys(batch for batch, _ in places)
        self._open[source] = len(takers)
        for each in takers:
            self._sources.setdefault(each, []).append(source)

    def finish(self, taker: ProducerBatch) -> list[ProducerBatch]:
        """The moved batches that are finished with this one."""
        finished = []
        for source in self._sources.pop(taker, ()):
            self._open[source] -= 1
            if not self._open[source]:
                del self._open[source]
                finished.append(source)
        return finished


def writable_after(batches: Sequence[ProducerBatch], error: PenstockError) -> tuple[int, int] | None:
    """The first partition and the number of those that take the records of batches whose partition is closed.

    None if the records stay: a try of theirs may have been applied, the application has named the partition of all, or
    the refusal does not tell.
    """
    writable = error.facts.get("writable_partitions")
    first = error.facts.get("first_writable_partition", 0)
    if error.code is not ErrorCode.PARTITION_CLOSED or error.maybe_applied:
        return None
    if not isinstance(writable, int) or not isinstance(first, int):
        return None
    if any(batch.maybe_applied for batch in batches) or all(batch.is_pinned for batch in batches):
        return None
    return first, max(1, writable)


def places_after(
    topic: TopicQueues, timer: Timer | None, choose: Callable[[int], int], partitioner: Partitioner | None
) -> KeyPlacement:
    """The partitions of the records of a moved batch, by key. None leaves the choice to the topic's sticky partition.

    Delayed records do not wait until the topic has turned. Those without a key stay together, in one timer. The
    `partitioner` chooses before all that. If it fails, the records go as they would without one: `send` took them.
    """
    first, partitions = (topic.first, topic.partitions) if timer is None else topic.newest
    keyless = None if timer is None else first + choose(partitions)

    def place_of(key: bytes | None) -> int | None:
        if partitioner is not None:
            try:
                number = placed(partitioner, topic.name, key, partitions)
            except Exception:  # a callback's edge
                _log.exception("the partitioner has failed for a record whose partition was closed")
                number = None
            if number is not None:
                return first + number
        return keyless if key is None else first + partition_for_key(key, partitions)

    return place_of


def may_send(queue: PartitionQueue) -> bool:
    """False for a queue that waits until its topic has turned. Batches that were sent before may go again."""
    topic = queue.topic
    if topic.coming is None or queue.timer is not None or queue.partition >= topic.coming[0]:
        return True
    return queue.sent_together > 0 or queue.batches[0].is_pinned


def records_to_turn(topic: TopicQueues) -> list[tuple[PartitionQueue, list[ProducerBatch]]] | None:
    """The waiting batches of the old partitions once the topic may turn, None while it may not.

    Batches whose partition the application has named stay.
    """
    if topic.coming is None:
        return None
    old = topic.queues[topic.first : topic.coming[0]]
    if any(queue.in_flight or queue.sent_together for queue in old):
        return None
    return [(queue, [batch for batch in queue.batches if not batch.is_pinned]) for queue in old]
