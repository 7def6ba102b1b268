"""The order in which an acquire looks at the partitions of its share group.

The nonce of the acquire decides it. So a repeated acquire looks in the same order, and often finds the locks of its
first try. Acquires with different nonces begin at different partitions, so they spread.
"""

from collections.abc import Iterator, Sequence
from math import gcd

from penstock_core.ids import LockNonce
from penstock_core.records.partitioner import murmur2

_STRAY_EACH = 16


def in_turn(counts: Sequence[int], nonce: LockNonce) -> Iterator[tuple[int, int]]:
    """Each pair of an index of `counts` and a number below that count, once, in the order of the nonce."""
    total = sum(counts)
    if not total:
        return
    start = murmur2(nonce.encode()) % total
    step = 1 + murmur2(nonce.encode()[::-1]) % total
    while gcd(step, total) != 1:
        step += 1
    for place in range(total):
        yield _pair(counts, (start + place * step) % total)


def strays(nonce: LockNonce) -> bool:
    """True for one in `_STRAY_EACH` nonces: the acquire does not prefer the partition that it acknowledges.

    A worker otherwise stays where it finds records, because one update then does both. If no worker ever strayed, a
    partition without a worker would starve while there are fewer workers than partitions with records.
    """
    return murmur2(b"stray" + nonce.encode()) % _STRAY_EACH == 0


def _pair(counts: Sequence[int], place: int) -> tuple[int, int]:
    for index, count in enumerate(counts):
        if place < count:
            return index, place
        place -= count
    raise AssertionError("the place is below the sum of the counts")
