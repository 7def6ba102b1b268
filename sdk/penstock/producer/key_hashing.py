"""The partition of a key for each `send`: Kafka's murmur2 by compiled code if there is some, else by Python.

Python's murmur2 takes longer than the rest of `send`. The package confluent-kafka has a compiled one, which takes a
tenth of it (docs/adr/0066). The producer uses that one where the package is installed (`penstock[murmur2]`), and it
agrees with ours on keys of each length. Otherwise the process remembers the hashes of keys.

Spread the records of a hot key over several partitions (docs/protocol/partitions).

The salt chooses the partition and nothing else. The record keeps its key, so each reader gets the original one.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeAlias

from penstock.arguments import check
from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode
from penstock_core.limits import SDK_KEYS_REMEMBERED_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.records.partitioner import murmur2, partition_for_key

# The partition of a key (bytes) among so many. Another hashable buffer is hashed by its bytes; what is none raises
# TypeError.
KeyHashing: TypeAlias = Callable[[bytes, int], int]
_PROBES = [bytes(range(0x7D, 0x7D + length)) for length in range(10)] + [b"foobar", b"a-little-bit-long-string"]
_PROBED_PARTITIONS = (1, 2, 3, 1_000, 2**31 - 1)
SaltedKeys = Mapping[bytes | str, int] | Callable[[str, bytes], int]


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


class Salting:
    """How many partitions each key is spread over: by key, or by a function of topic and key."""

    __slots__ = ("_by_key", "_spread")

    def __init__(self, salted_keys: SaltedKeys) -> None:
        """Raises InvalidError for keys or numbers of a wrong type or size."""
        self._spread: Callable[[str, bytes], int] | None = None
        self._by_key: dict[bytes, int] = {}
        if callable(salted_keys):
            self._spread = salted_keys
            return
        check(isinstance(salted_keys, Mapping), f"salted_keys={salted_keys!r:.100}: give {{b'key': 8}} or a function")
        for key, count in salted_keys.items():
            check(isinstance(key, bytes | str), f"salted_keys has the key {key!r:.100}: give bytes or str")
            self._by_key[key.encode() if isinstance(key, str) else key] = _checked(key, count)

    def step(self, topic: str, key: bytes, partitions: int, choose: Callable[[int], int]) -> int:
        """How many partitions behind the key's own one a record goes, 0 if the key is not salted.

        `choose(n)` picks one of n. Raises InvalidError if the function gives no whole number of partitions.
        """
        count = self._by_key.get(key, 1) if self._spread is None else _checked(key, self._spread(topic, key))
        count = min(count, partitions)
        return choose(count) if count > 1 else 0

    def refuse_compacted(self, topic: str, key: bytes) -> None:
        """Raises InvalidError if the key is salted: a tombstone would delete it in one of its partitions only."""
        is_salted = key in self._by_key if self._spread is None else self._spread(topic, key) > 1
        if is_salted:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST,
                f"salted_keys has {key!r:.100}, and topic {topic!r} is compacted: each partition would keep a record "
                "of the key. Leave the key out, or use a topic without compaction",
            )


def _checked(key: object, count: object) -> int:
    is_number = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= TOPIC_PARTITIONS_MAX
    check(is_number, f"salted_keys gives {count!r:.100} for {key!r:.100}: give 1 to {TOPIC_PARTITIONS_MAX} partitions")
    assert isinstance(count, int)
    return count
