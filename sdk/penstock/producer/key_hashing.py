"""The partition of a key for each `send`: Kafka's murmur2 by compiled code if there is some, else by Python.

Python's murmur2 takes longer than the rest of `send`. The package confluent-kafka has a compiled one, which takes a
tenth of it (docs/adr/0066). The producer uses that one where the package is installed (`penstock[murmur2]`), and it
agrees with ours on keys of each length. Otherwise the process remembers the hashes of keys.

Spread the records of a hot key over several partitions (docs/protocol/partitions).

The salt chooses the partition and nothing else. The record keeps its key, so each reader gets the original one.

Ask a program's own `partitioner`, and check what it gives.

The choice of a partition for records without a key.

Records stick to one partition, so that they fill batches (KIP-480), and move on by bytes (KIP-794): a batch of many
small records must not give one partition several times what its neighbours have.

- The next partition is one that is in no request, and of those the one that has had the fewest bytes.
- It takes half of what the partitions have had on average, at least `STICKY_BYTES_MIN` and at most a batch. So a short
  stream spreads evenly, and a long one goes in full batches, as few per request as without this bound.
- A partition that was slow for long need not catch up: it counts as one batch behind at most.
- A partition whose deliveries take longer gets less: its bytes count as many times as it is slower than the median, up
  to `SLOWNESS_MAX` times. So it still gets some, and is found again when it is quick. Kafka goes by the lengths of
  queues (KIP-794, `partitioner.adaptive`); here a partition is in one request at most, and its latency tells more.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import index
from statistics import median
from typing import TypeAlias

from penstock.arguments import check, is_whole
from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode
from penstock_core.limits import SDK_KEYS_REMEMBERED_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.records.partitioner import murmur2, partition_for_key

# The partition of a key (bytes) among so many. Another hashable buffer is hashed by its bytes; what is none raises
# TypeError.
KeyHashing: TypeAlias = Callable[[bytes, int], int]
_PROBES = [bytes(range(0x7D, 0x7D + length)) for length in range(10)] + [b"foobar", b"a-little-bit-long-string"]
_PROBED_PARTITIONS = (1, 2, 3, 1_000, 2**31 - 1)
# The topic, the key if there is one, and how many partitions take records. It gives one of them, counted from 0, or
# None to leave the choice to the producer.
Partitioner: TypeAlias = Callable[[str, bytes | None, int], int | None]
SaltedKeys = Mapping[bytes | str, int] | Callable[[str, bytes], int]
STICKY_BYTES_MIN = 16 * 1024
SLOWNESS_MAX = 8.0
_WEIGHT = 0.25  # of a new latency, if the partition was alone in its request


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


def placed(partitioner: Partitioner, topic: str, key: bytes | None, partitions: int) -> int | None:
    """The partition that a partitioner gives, counted from 0. None leaves the choice to the producer.

    Raises InvalidError if it gives no partition of the topic, and what the partitioner raises.
    """
    number = partitioner(topic, key, partitions)
    if number is None:
        return None
    is_one = is_whole(number) and 0 <= number < partitions
    check(
        is_one,
        f"partitioner gives {number!r:.100} for the key {key!r:.100} of topic {topic!r}: give a whole number from 0 to "
        f"{partitions - 1}, or None to leave the choice to the producer",
    )
    return index(number)


class StickyPartition:
    """The choice for one topic. The caller takes each record's size from `left_bytes`; from 0 on it calls `move`."""

    __slots__ = ("_bytes", "_latencies_ms", "_level", "_share", "left_bytes", "partition")

    def __init__(self) -> None:
        self.partition = 0
        self.left_bytes = 0
        self._share = 0
        self._bytes = [0.0]
        self._latencies_ms: dict[int, float] = {}
        self._level = 0.0  # the most bytes that a partition had after its turn, had it not been slow

    def move(self, is_busy: Sequence[bool], batch_bytes: int, choose: Callable[[int], int]) -> int:
        """The next partition. `is_busy` says of each partition whether it is in a request. `choose(n)` picks one of n.

        The partition that it leaves need not have had its share.
        """
        taken = self._share - self.left_bytes
        self._level = max(self._level, self._bytes[self.partition] + taken)
        self._bytes[self.partition] += taken * self.slowness(self.partition)
        count = len(is_busy)
        self._bytes = (self._bytes + [min(self._bytes)] * (count - len(self._bytes)))[:count]
        floor = self._level - batch_bytes
        self._bytes = [max(each, floor) for each in self._bytes]
        start = choose(count)
        cycle = [(start + step) % count for step in range(count)]
        free = [each for each in cycle if not is_busy[each]] or cycle
        self.partition = min(free, key=self._bytes.__getitem__)
        self._share = min(max(STICKY_BYTES_MIN, int(sum(self._bytes) // count // 2)), batch_bytes)
        self.left_bytes = self._share
        return self.partition

    def note_latency(self, partition: int, latency_ms: int, partitions: int) -> None:
        """A delivery to the partition took so long, in a request of so many partitions, which all waited together."""
        known = self._latencies_ms.get(partition)
        weight = _WEIGHT / partitions
        self._latencies_ms[partition] = latency_ms if known is None else known + weight * (latency_ms - known)

    def slowness(self, partition: int) -> float:
        """How many times slower than the median the partition is, from 1 to `SLOWNESS_MAX`."""
        latency_ms = self._latencies_ms.get(partition)
        if latency_ms is None:
            return 1.0
        usual_ms = max(1.0, median(self._latencies_ms.values()))
        return min(max(1.0, latency_ms / usual_ms), SLOWNESS_MAX)
