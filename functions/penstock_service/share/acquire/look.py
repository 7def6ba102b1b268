"""What one look through the partitions of a share group has found.

The order in which an acquire looks at the partitions of its share group.

The nonce of the acquire decides it. So a repeated acquire looks in the same order, and often finds the locks of its
first try. Acquires with different nonces begin at different partitions, so they spread.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

from penstock_core.ids import LockNonce, PartitionKey
from penstock_core.log.index import Head
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acquire import Grant
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.share.acknowledge import AckOutcome
from penstock_service.share.batches.read_batches import StoredBatch
from penstock_service.share.share_partitions import SharePartition

_STRAY_EACH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The locks that the acquire has in one partition, the state that shows them, and batches that were read before.

    `is_repeat`: another try of the acquire took them, and may have handed them over.
    """

    partition: SharePartition
    state: ShareState
    grants: Sequence[Grant]
    batches: Sequence[StoredBatch] = ()
    is_repeat: bool = False


@dataclass(slots=True, kw_only=True)
class Look:
    """What a look has found.

    `idle` are the partitions that had nothing. `is_complete`: these are all partitions of the group. `blocked`
    have fresh records, and no room for them in flight. `has_passed`: fresh records were finished without being handed
    out, and there are more. `is_spent`: the look has decoded as much as it may, so it has not seen everything.
    `available_ms` is the time until a record comes back. `passed_bytes` are those of the batches, by topic, that were
    read for records which the filter has finished.
    """

    taken: list[Taken] = field(default_factory=list)
    outcomes: list[tuple[int, AckOutcome]] = field(default_factory=list)
    woken: list[ShareKey] = field(default_factory=list)
    idle: list[SharePartition] = field(default_factory=list)
    is_complete: bool = False
    blocked: set[PartitionKey] = field(default_factory=set)
    is_alone: bool = False
    has_passed: bool = False
    is_spent: bool = False
    available_ms: int | None = None
    passed_bytes: Counter[str] = field(default_factory=Counter)

    def note_available(self, available_ms: int | None) -> None:
        """A record comes back after that time."""
        times = [each for each in (self.available_ms, available_ms) if each is not None]
        self.available_ms = min(times, default=None)


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


def records_within(head: Head, position: int, bytes_max: int, records_max: int) -> int:
    """The number of fresh records that take about `bytes_max` as stored, 1 to `records_max`.

    It goes by the refs in the head's tail, as if the records of one ref had one size. Where it does not know, or where
    there are no fresh records, it is `records_max`.
    """
    start = head.next_record(position)
    if not head.tail_base <= start < head.next_offset:
        return records_max
    count = 0
    for located in head.located_tail():
        records = located.end_offset - max(start, located.base_offset)
        if records <= 0:
            continue
        fitting = bytes_max * located.ref.offset_span // located.ref.length
        count += min(records, fitting)
        if fitting < records or count >= records_max:
            break
        bytes_max -= located.ref.length * records // located.ref.offset_span
    return max(1, min(count, records_max))
