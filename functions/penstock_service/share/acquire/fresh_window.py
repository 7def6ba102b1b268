"""The fresh records of a partition, read before they are locked: order by key needs their keys.

A window covers the records from the position on. It ends before the first record that cannot be read for a moment. A
record that will never be readable is in it as one without a key, so that it does not hold up the others.

What one look through the partitions of a share group has found.

The order in which an acquire looks at the partitions of its share group.

The nonce of the acquire decides it. So a repeated acquire looks in the same order, and often finds the locks of its
first try. Acquires with different nonces begin at different partitions, so they spread.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import gcd

from penstock_core.backoff import look_again_ms
from penstock_core.filters.filter import Filter, matches
from penstock_core.ids import LockNonce, Partition, PartitionKey
from penstock_core.limits import (
    GROUP_CHECK_MS_MAX,
    GROUP_CHECK_MS_MIN,
    GROUP_PATIENCE,
    SHARE_WINDOW_BYTES,
    SHARE_WINDOW_RECORDS,
)
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.records.partitioner import murmur2
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acquire import Grant
from penstock_core.share.read_first import NO_KEY, key_hash
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import NOTHING_HELD, HeldBack, ShareKey, ShareState, held_back
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import AckOutcome
from penstock_service.share.batches.decode_batches import decode_batches, expired_records, filter_of
from penstock_service.share.batches.read_batches import FoundBatches, StoredBatch, WantedRecords, read_batches
from penstock_service.share.share_partitions import SharePartition, states_of

_STRAY_EACH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshWindow:
    """The hash of each record from `start` on, None for one that is finished, and the batches that hold them.

    The records of `expired` are finished because their time is over.
    """

    start: int
    hashes: Sequence[int | None] = ()
    batches: Sequence[StoredBatch] = ()
    expired: Ranges = ()

    def covers(self, offset: int) -> bool:
        """True if the window tells what comes from that offset on."""
        return offset == self.start or self.start < offset < self.start + len(self.hashes)

    def hashes_from(self, offset: int) -> Sequence[int | None]:
        """The hashes from an offset on that the window covers."""
        return self.hashes[offset - self.start :]

    def expired_between(self, start: int, end: int) -> int:
        """The number of expired records in `[start, end)`."""
        return RecordSet(self.expired).only(((start, end),)).count


def first_fresh(partition: SharePartition, state: ShareState | None) -> int:
    """The first record that was never handed out and is still there."""
    return partition.head.next_record(0 if state is None else state.position)


def fresh_window(
    instance: Instance, config: ShareGroupConfig, partition: SharePartition, state: ShareState, budget: DecodeBudget
) -> FreshWindow:
    """The next fresh records, as many as may be in flight and as the budget allows. Costs what `read_batches` costs."""
    head = partition.head
    start = first_fresh(partition, state)
    room = min(config.in_flight_max - state.open, SHARE_WINDOW_RECORDS, head.next_offset - start)
    if room <= 0:
        return FreshWindow(start=start)
    end = start + records_within(head, start, SHARE_WINDOW_BYTES, room)
    asked = WantedRecords(key=partition.key.partition_key, head=head, ranges=((start, end),))
    [found] = read_batches(instance, [asked])
    hashes, expired = _hashes(instance, found, ((start, end),), filter_of(config), budget)
    window: list[int | None] = []
    for offset in range(start, end):
        if offset in hashes:
            window.append(hashes[offset])
        elif _holds(found.removed, offset):
            window.append(None)
        elif _holds(found.lost, offset):
            window.append(NO_KEY)
        else:
            break
    return FreshWindow(start=start, hashes=window, batches=found.batches, expired=expired)


def _hashes(
    instance: Instance, found: FoundBatches, ranges: Ranges, wanted: Filter | None, budget: DecodeBudget
) -> tuple[dict[int, int | None], Ranges]:
    """The hash of each record by its offset, while the budget lasts, and the records whose time is over.

    Records that cannot be decoded have no key.
    """
    decoded = decode_batches(found.batches, ranges, budget)
    hashes: dict[int, int | None] = dict.fromkeys(RecordSet(decoded.removed).offsets())
    hashes |= dict.fromkeys(RecordSet(decoded.undecodable).offsets(), NO_KEY)
    over = expired_records(found.batches, decoded.records, instance.clock.now_ms())
    expired: list[int] = []
    for record in decoded.records:
        is_taken = wanted is None or matches(wanted, record.headers)
        if is_taken and record.offset in over:
            expired.append(record.offset)
            is_taken = False
        hashes[record.offset] = key_hash(record.key) if is_taken else None
    return hashes, normalized((offset, offset + 1) for offset in expired)


def _holds(ranges: Ranges, offset: int) -> bool:
    return any(start <= offset < end for start, end in ranges)


class OlderGenerations:
    """Tells one look of an acquire what is held back. It reads each generation once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known: dict[tuple[str, int], HeldBack] = {}

    def held_from(self, partition: SharePartition) -> HeldBack:
        """The records that stay behind in the partition. Costs nothing for a partition of a topic's first generation.

        For others it costs one read of heads and one of states for each 100 older partitions, and one of the topic if
        the partition came after it was last read.
        """
        key = partition.key
        topic = self._topic(partition)
        if topic is None:
            return NOTHING_HELD
        begin = max(takewhile(key.partition.__ge__, topic.generations))
        if not begin:
            return NOTHING_HELD
        place = (key.topic_id, begin)
        if place not in self._known:
            self._known[place] = self._read(key._replace(partition=Partition(number)) for number in range(begin))
        return self._known[place]

    def again_ms(self, held: HeldBack) -> int:
        """The time after which the partition is worth a look. No wake-up tells of what older partitions finish."""
        waited_ms = self._instance.clock.now_ms() - held.closed_ms
        return look_again_ms(waited_ms, GROUP_CHECK_MS_MIN, GROUP_CHECK_MS_MAX, GROUP_PATIENCE)

    def _topic(self, partition: SharePartition) -> Topic | None:
        """The topic, as it is since it has that partition. None if it was deleted, or made anew since."""
        topics, key = self._instance.topic_cache, partition.key
        topic = topics.find(partition.topic)
        if topic is not None and key.partition >= topic.partitions:
            topics.forget(partition.topic)
            topic = topics.find(partition.topic)
        return topic if topic is not None and topic.topic_id == key.topic_id else None

    def _read(self, older: Iterable[ShareKey]) -> HeldBack:
        keys = [*older]
        heads = self._instance.stores.log.heads([key.partition_key for key in keys])
        states = states_of(self._instance, keys)
        return held_back((heads[key.partition_key], states.get(key)) for key in keys if key.partition_key in heads)


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
