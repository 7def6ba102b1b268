"""The partition of a key: Kafka's murmur2, so that a key lands where Kafka's clients put it.

Source: `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive`, and KIP-480's partitioner for records with key.
"""

import struct

from penstock_core.ids import Partition

_SEED = 0x9747B28C
_M = 0x5BD1E995
_UINT32 = 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> Partition:
    """The partition of a key among `partitions` (1 or more). It changes when partitions are added."""
    return Partition((murmur2(key) & 0x7FFFFFFF) % partitions)


def murmur2(data: bytes) -> int:
    """The 32-bit hash as an unsigned number (Java's is the same bits, signed)."""
    length = len(data)
    tail_at = length & ~3
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:tail_at]):
        k = (k * _M) & _UINT32
        k = ((k ^ (k >> 24)) * _M) & _UINT32
        h = ((h * _M) & _UINT32) ^ k
    if length > tail_at:
        h = ((h ^ int.from_bytes(data[tail_at:], "little")) * _M) & _UINT32
    h = ((h ^ (h >> 13)) * _M) & _UINT32
    return h ^ (h >> 15)
