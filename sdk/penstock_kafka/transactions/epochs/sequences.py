"""The sequences of one epoch: a batch is new, or a repeat, or out of order. No I/O.

A partition begins at 0 in each epoch, goes on through the transactions of the epoch, and after 2^31 - 1 comes 0.
"""

from collections import deque
from dataclasses import dataclass, field

from penstock_core.limits import KAFKA_TRANSACTION_PLACES_MAX
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.transactions.epochs.plain_batch import PlainBatch

Place = tuple[str, int]  # a topic and a partition

_REMEMBERED = 5  # batches that a client may have on their way, as in Kafka


@dataclass(slots=True, kw_only=True)
class _Lane:
    following: int = 0
    newest: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Sequences:
    """The next sequence of each partition, and its newest batches."""

    def __init__(self) -> None:
        self._lanes: dict[Place, _Lane] = {}

    def is_new(self, place: Place, batch: PlainBatch) -> bool:
        """False for a repeat: its sequence, count and CRC are those of a batch that was taken.

        Raises RequestRefused if it is neither new nor a repeat, or the epoch has too many partitions.
        """
        lane = self._lanes.get(place)
        if lane is None and len(self._lanes) >= KAFKA_TRANSACTION_PLACES_MAX:
            raise RequestRefused(
                KafkaError.invalid_producer_id_mapping,
                f"an epoch with {KAFKA_TRANSACTION_PLACES_MAX:,} partitions: take another epoch",
            )
        lane = lane or _Lane()
        if batch.first_sequence == lane.following:
            return True
        if _identity(batch) in lane.newest:
            return False
        raise RequestRefused(
            KafkaError.out_of_order_sequence_number,
            f"sequence {batch.first_sequence} for partition {place[1]} of topic {place[0]!r:.100}: {lane.following} "
            "must come first",
        )

    def take(self, place: Place, batch: PlainBatch) -> None:
        """The batch was taken: the next one follows it."""
        lane = self._lanes.setdefault(place, _Lane())
        lane.following = batch.next_sequence
        lane.newest.append(_identity(batch))

    def last(self, place: Place) -> int:
        """The last sequence of the partition, -1 before the first."""
        lane = self._lanes.get(place)
        return -1 if lane is None else lane.following - 1


def _identity(batch: PlainBatch) -> tuple[int, int, int]:
    return batch.first_sequence, batch.record_count, batch.crc
