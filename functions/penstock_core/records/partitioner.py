"""The partition of a key: Kafka's murmur2, so that a key lands where Kafka's clients put it.

Source: `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive`, and KIP-480's partitioner for records with key.
"""

import struct

from penstock_core.ids import Partition

_SEED = 0x9747B28C
_M = 0x5BD1E995
_UINT32 = 0xFFFFFFFF
_WORDS = [struct.Struct(f"<{words}I").unpack_from for words in range(64)]  # of keys shorter than 256 bytes


def partition_for_key(key: bytes, partitions: int) -> Partition:
    """The partition of a key among `partitions` (1 or more). It changes when partitions are added."""
    return Partition((murmur2(key) & 0x7FFFFFFF) % partitions)


def murmur2(data: bytes) -> int:
    """The 32-bit hash as an unsigned number (Java's is the same bits, signed)."""
    # Products and exclusive ors of the low 32 bits depend on the low 32 bits only, so a mask is due before a shift to
    # the right, and where numbers would grow from word to word.
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for word in _WORDS[words](data) if words < len(_WORDS) else struct.unpack_from(f"<{words}I", data):
        k = word * _M & _UINT32
        h = (h * _M ^ (k ^ k >> 24) * _M) & _UINT32
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _UINT32
    h = (h ^ h >> 13) * _M & _UINT32
    return h ^ h >> 15
