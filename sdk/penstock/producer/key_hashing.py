"""The partition of a key for each `send`: Kafka's murmur2 by compiled code if there is some, else by Python.

Python's murmur2 takes longer than the rest of `send`. The package confluent-kafka has a compiled one, which takes a
tenth of it (docs/adr/0066). The producer uses that one where the package is installed (`penstock[murmur2]`), and it
agrees with ours on keys of each length. Otherwise the process remembers the hashes of keys.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from penstock_core.limits import SDK_KEYS_REMEMBERED_MAX
from penstock_core.records.partitioner import murmur2, partition_for_key

# The partition of a key (bytes) among so many. Another hashable buffer is hashed by its bytes; what is none raises
# TypeError.
KeyHashing: TypeAlias = Callable[[bytes, int], int]

_PROBES = [bytes(range(0x7D, 0x7D + length)) for length in range(10)] + [b"foobar", b"a-little-bit-long-string"]
_PROBED_PARTITIONS = (1, 2, 3, 1_000, 2**31 - 1)


@cache
def key_hashing() -> KeyHashing:
    """The quickest hashing that this installation has. The first call may load confluent-kafka, which takes 10 ms."""
    try:
        from confluent_kafka import murmur2 as compiled
    except ImportError:  # not installed, or a release without it
        return RememberedHashes().partition
    return chosen(compiled)


def chosen(compiled: KeyHashing) -> KeyHashing:
    """The compiled hashing if it puts each probe where Kafka's Java client does, else Python's."""
    if all(compiled(key, count) == partition_for_key(key, count) for key in _PROBES for count in _PROBED_PARTITIONS):
        return compiled
    logging.getLogger("penstock.producer").warning(
        "confluent_kafka.murmur2 does not hash as Kafka's Java client does: this producer hashes in Python"
    )
    return RememberedHashes().partition


class RememberedHashes:
    """Python's hashing, with the hashes of up to `SDK_KEYS_REMEMBERED_MAX` keys. Then it begins anew."""

    def __init__(self) -> None:
        self._hashes = _Hashes()

    def __len__(self) -> int:
        """The number of hashes that it remembers."""
        return len(self._hashes)

    def partition(self, key: bytes, partitions: int) -> int:
        """The partition of a key among `partitions`. Raises TypeError for what is not hashable."""
        return (self._hashes[key] & 0x7FFFFFFF) % partitions


class _Hashes(dict[bytes, int]):
    """One look-up for a key that is known. A cache with an order of use takes three times as long for a new one."""

    def __missing__(self, key: bytes) -> int:
        found = murmur2(key)
        if len(self) >= SDK_KEYS_REMEMBERED_MAX:
            self.clear()
        self[key] = found
        return found
