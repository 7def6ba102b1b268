"""A batch of a Kafka transaction, and the same batch as the service takes it.

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
from dataclasses import dataclass

from crc32c import crc32c

from penstock_core.records.record_batch import parse_header
from penstock_kafka.checked_batches import check_crc, checked
from penstock_kafka.errors import KafkaError, RequestRefused

SEQUENCES = 2**31  # after the last comes 0

_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_CRC_AT, _CRC_FROM, _ATTRIBUTES_AT, _PRODUCER_AT = 17, 21, 21, 43
_TRANSACTIONAL_BIT = 0x10


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
    summary, have_keys = checked(plain)
    return PlainBatch(
        data=bytes(plain),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        record_count=summary.record_count,
        crc=header.crc,
        have_keys=have_keys,
    )
