"""The fresh records of a partition, read before they are locked: order by key needs their keys.

A window covers the records from the position on. It ends before the first record that cannot be read for a moment. A
record that will never be readable is in it as one without a key, so that it does not hold up the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from penstock_core.backoff import look_again_ms
from penstock_core.filters.filter import Filter, matches
from penstock_core.ids import Partition
from penstock_core.limits import (
    GROUP_CHECK_MS_MAX,
    GROUP_CHECK_MS_MIN,
    GROUP_PATIENCE,
    SHARE_WINDOW_BYTES,
    SHARE_WINDOW_RECORDS,
)
from penstock_core.log.topic import Topic
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.share.held_back import NOTHING_HELD, HeldBack, held_back
from penstock_core.share.read_first import NO_KEY, key_hash
from penstock_core.share.record_set import Ranges, RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.look import records_within
from penstock_service.share.batches.decode_batches import decode_batches, filter_of
from penstock_service.share.batches.read_batches import FoundBatches, StoredBatch, WantedRecords, read_batches
from penstock_service.share.share_partitions import SharePartition, states_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshWindow:
    """The hash of each record from `start` on, None for one that is finished, and the batches that hold them."""

    start: int
    hashes: Sequence[int | None] = ()
    batches: Sequence[StoredBatch] = ()

    def covers(self, offset: int) -> bool:
        """True if the window tells what comes from that offset on."""
        return offset == self.start or self.start < offset < self.start + len(self.hashes)

    def hashes_from(self, offset: int) -> Sequence[int | None]:
        """The hashes from an offset on that the window covers."""
        return self.hashes[offset - self.start :]


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
    hashes = _hashes(found, ((start, end),), filter_of(config), budget)
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
    return FreshWindow(start=start, hashes=window, batches=found.batches)


def _hashes(found: FoundBatches, ranges: Ranges, wanted: Filter | None, budget: DecodeBudget) -> dict[int, int | None]:
    """The hash of each record by its offset, while the budget lasts. Records that cannot be decoded have no key."""
    decoded = decode_batches(found.batches, ranges, budget)
    hashes: dict[int, int | None] = dict.fromkeys(RecordSet(decoded.removed).offsets())
    hashes |= dict.fromkeys(RecordSet(decoded.undecodable).offsets(), NO_KEY)
    for record in decoded.records:
        is_taken = wanted is None or matches(wanted, record.headers)
        hashes[record.offset] = key_hash(record.key) if is_taken else None
    return hashes


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
