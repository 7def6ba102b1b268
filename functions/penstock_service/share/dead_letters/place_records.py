"""Place records that move to another topic: dead letters, their way back, and copies of subscriptions.

They go to the partition of their source's number, modulo the topic's writable partitions. So they keep the order of
their partition. If one of the two topics has `ordering_on_change=wait`, records with a key go where a producer would
put them. So the key keeps its order although its partitions change (docs/protocol/partitions).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import MOVED_BYTES_MAX, REDRIVE_AT_ONCE
from penstock_core.log.topic import WAIT, Topic
from penstock_core.records.codec import NewRecord
from penstock_core.records.expiry import has_expiry
from penstock_core.records.partitioner import partition_for_key
from penstock_core.share.dead_letter import DeadLetterOrigin, too_large_letter
from penstock_core.share.record_set import Ranges
from penstock_service.instance.instance import Instance
from penstock_service.share.dead_letters.move_records import MovedRecords, encoded

Each = TypeVar("Each")
_FEWER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The dead letter for the records at `ranges`. None for a record that goes round in a circle of burials."""

    origin: DeadLetterOrigin
    ranges: Ranges
    record: NewRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLetters:
    """The batches of the first `count` letters. `too_large` of them only name their record, and `loops` have none."""

    moved: Sequence[MovedRecords]
    count: int
    too_large: int
    loops: int

    def report(self, instance: Instance, metric: str) -> None:
        """Count them once they have moved."""
        for name, count in (
            (metric, self.count - self.loops),
            ("dead_letters_too_large", self.too_large),
            ("dead_letter_loops", self.loops),
        ):
            if count:
                instance.telemetry.count(name, count)


def check_letter_topic(instance: Instance, name: str, before: str | None) -> None:
    """Raises UNKNOWN_TOPIC, and INVALID_CONFIG for a compacted topic in place of the one before.

    Compaction keeps the newest record of a key, so it removes dead letters. One read.
    """
    topic = instance.topic_cache.read_through(name)
    if topic.config.is_compacted and name != before:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"dead_letter_topic={shown(name)}: is compacted and keeps one dead letter of each key. Name another topic",
        )


def keeps_keys(topic: Topic) -> bool:
    """True if the order of the topic's keys holds across a change of its partitions, or has held across one."""
    return topic.config.ordering_on_change == WAIT or len(topic.generations) > 1


def places_keys(instance: Instance, topic: Topic, source: str) -> bool:
    """True if records of the topic `source` go to `topic` by their keys. A read for a source that is not remembered."""
    found = instance.topic_cache.find(source)
    return keeps_keys(topic) or (found is not None and keeps_keys(found))


def place_of(topic: Topic, key: bytes | None, number: int, *, by_key: bool) -> PartitionKey:
    """The partition of `topic` for a record of its source's partition `number`."""
    if by_key and key is not None:
        partition = Partition(topic.first_writable + partition_for_key(key, topic.writable_partitions))
    else:
        partition = topic.writable_place(number)
    return PartitionKey(topic.topic_id, partition)


def place_records(
    topic: Topic, records: Sequence[NewRecord], number: int, *, by_key: bool
) -> Sequence[MovedRecords] | None:
    """One batch for each partition that the records go to, in their order; none for no records.

    None if one transaction cannot move so many: try with fewer. One record always fits, unless it is larger than
    `MOVED_BYTES_MAX`.
    """
    placed: dict[PartitionKey, list[NewRecord]] = {}
    for each in records:
        placed.setdefault(place_of(topic, each.key, number, by_key=by_key), []).append(each)
    if len(placed) > REDRIVE_AT_ONCE:
        return None
    moved: list[MovedRecords] = []
    for key, mine in placed.items():
        data = encoded(mine)
        if data is None:
            return None
        may_expire = any(has_expiry(each.headers) for each in mine)
        moved.append(MovedRecords(topic=topic, key=key, data=data, may_expire=may_expire))
    return moved if sum(len(each.data) for each in moved) <= MOVED_BYTES_MAX else None


def fitting(
    records: Sequence[Each], place: Callable[[Sequence[Each]], Sequence[MovedRecords] | None]
) -> tuple[Sequence[MovedRecords] | None, int]:
    """What `place` makes of as many records as fit, from the first on, and their number.

    None if the first record alone does not fit.
    """
    count = len(records)
    while (moved := place(records[:count])) is None and count > 1:
        count = max(1, count // _FEWER)
    return moved, count


def place_letters(topic: Topic, letters: Sequence[Letter], number: int, *, by_key: bool) -> PlacedLetters:
    """As many of the letters as one transaction moves, from the first one on, and one at the least."""

    def place(some: Sequence[Letter]) -> Sequence[MovedRecords] | None:
        records = [each.record for each in some if each.record is not None]
        return place_records(topic, records, number, by_key=by_key)

    moved, count = fitting(letters, place)
    if moved is not None:
        loops = sum(each.record is None for each in letters[:count])
        return PlacedLetters(moved=moved, count=count, too_large=0, loops=loops)
    named = place_records(topic, [too_large_letter(letters[0].origin)], number, by_key=by_key)
    assert named  # a few headers
    return PlacedLetters(moved=named, count=1, too_large=1, loops=0)
