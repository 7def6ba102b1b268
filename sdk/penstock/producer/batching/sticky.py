"""The choice of a partition for records without a key.

Records stick to one partition, so that they fill batches (KIP-480), and move on by bytes (KIP-794): a batch of many
small records must not give one partition several times what its neighbours have.

- The next partition is one that is in no request, and of those the one that has had the fewest bytes.
- It takes half of what the partitions have had on average, at least `STICKY_BYTES_MIN` and at most a batch. So a short
  stream spreads evenly, and a long one goes in full batches, as few per request as without this bound.
- A partition that was slow for long need not catch up: it counts as one batch behind at most.
"""

from collections.abc import Callable, Sequence

STICKY_BYTES_MIN = 16 * 1024


class StickyPartition:
    """The choice for one topic. The caller takes each record's size from `left_bytes`; from 0 on it calls `move`."""

    __slots__ = ("_bytes", "_share", "left_bytes", "partition")

    def __init__(self) -> None:
        self.partition = 0
        self.left_bytes = 0
        self._share = 0
        self._bytes = [0]

    def move(self, is_busy: Sequence[bool], batch_bytes: int, choose: Callable[[int], int]) -> int:
        """The next partition. `is_busy` says of each partition whether it is in a request. `choose(n)` picks one of n.

        The partition that it leaves need not have had its share.
        """
        self._bytes[self.partition] += self._share - self.left_bytes
        count = len(is_busy)
        self._bytes = (self._bytes + [min(self._bytes)] * (count - len(self._bytes)))[:count]
        floor = max(self._bytes) - batch_bytes
        self._bytes = [max(each, floor) for each in self._bytes]
        start = choose(count)
        cycle = [(start + step) % count for step in range(count)]
        free = [each for each in cycle if not is_busy[each]] or cycle
        self.partition = min(free, key=self._bytes.__getitem__)
        self._share = min(max(STICKY_BYTES_MIN, sum(self._bytes) // count // 2), batch_bytes)
        self.left_bytes = self._share
        return self.partition
