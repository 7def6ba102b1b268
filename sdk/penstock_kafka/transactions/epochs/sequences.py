"""The sequences of one epoch: a batch is new, or a repeat, or out of order. No I/O.

A partition begins at 0 in each epoch, goes on through the transactions of the epoch, and after 2^31 - 1 comes 0.

A batch of a Kafka transaction, and the same batch as the service takes it.

The service numbers whole transactions. So its batches carry no transactional bit, no producer and no sequence, and a
CRC-32C of what is left. The records stay as they are.

```
17  CRC-32C        computed anew
21  attributes     without bit 4
43  producer id    -1
51  producer epoch -1
53  base sequence  -1
```
"""

import struct
from collections import deque
from dataclasses import dataclass, field

from crc32c import crc32c

from penstock_core.limits import KAFKA_TRANSACTION_PLACES_MAX
from penstock_core.records.record_batch import parse_header
from penstock_kafka.checked_batches import check_crc, checked
from penstock_kafka.errors import KafkaError, RequestRefused

Place = tuple[str, int]  # a topic and a partition
_REMEMBERED = 5  # batches that a client may have on their way, as in Kafka
SEQUENCES = 2**31  # after the last comes 0
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_CRC_AT, _CRC_FROM, _ATTRIBUTES_AT, _PRODUCER_AT = 17, 21, 21, 43
_TRANSACTIONAL_BIT = 0x10


@dataclass(slots=True, kw_only=True)
class _Lane:
    following: int = 0
    newest: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBatch:
    """`data` is for the service. The rest is what the client wrote into the header."""

    data: bytes
    producer_id: int
    producer_epoch: int
    first_sequence: int
    record_count: int
    crc: int
    have_keys: bool
    may_expire: bool

    @property
    def next_sequence(self) -> int:
        """The sequence that follows the batch."""
        return (self.first_sequence + self.record_count) % SEQUENCES


def plain_batch(data: bytes) -> PlainBatch:
    """The batch that a transactional producer has sent for one partition.

    Raises as `checked`, and RequestRefused if it is not one batch of a transaction.
    """
    header = parse_header(data)
    if header.length != len(data):
        raise RequestRefused(KafkaError.invalid_record, "a transaction's produce has one batch for each partition")
    if not header.is_transactional or header.producer_id < 0 or header.base_sequence < 0:
        raise RequestRefused(KafkaError.invalid_txn_state, "the batch is of no transaction, but its request is")
    check_crc(data)
    plain = bytearray(data)
    _ATTRIBUTES.pack_into(plain, _ATTRIBUTES_AT, header.attributes & ~_TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(plain, _PRODUCER_AT, -1, -1, -1)
    _CRC.pack_into(plain, _CRC_AT, crc32c(memoryview(plain)[_CRC_FROM:]))
    summary, have_keys, may_expire = checked(plain)
    return PlainBatch(
        data=bytes(plain),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        record_count=summary.record_count,
        crc=header.crc,
        have_keys=have_keys,
        may_expire=may_expire,
    )


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
