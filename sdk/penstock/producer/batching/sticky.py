"""The choice of a partition for records without a key.

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

from collections.abc import Callable, Sequence
from statistics import median

STICKY_BYTES_MIN = 16 * 1024
SLOWNESS_MAX = 8.0
_WEIGHT = 0.25  # of a new latency, if the partition was alone in its request


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
