"""Which dead letters of a topic are open: no redrive has moved or dropped them.

The hidden share group of redrives remembers those that are done (redrive.py). Without it all letters are open.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.ids import Offset, Partition, ShareGroupId, parse_own_topic_name
from penstock_core.limits import DEAD_LETTER_RANGES_MAX
from penstock_core.log.index import Head, ranges_of
from penstock_core.log.topic import Topic
from penstock_core.share.acquire import LogBounds
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_group import redrive_name
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_service.instance.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLetters:
    """The letters of one partition: `records` in all, and those that are open.

    `open_ranges` are the open offsets from `ranges_from` on: the newest, if there are many ranges.
    """

    partition: Partition
    records: int
    open: int
    open_ranges: Ranges
    ranges_from: int


def describe_letters(instance: Instance, topic_name: str) -> list[PartitionLetters]:
    """The letters of each partition. Two reads, and one for each 100 partitions. Raises UNKNOWN_TOPIC."""
    topic = instance.topic_cache.read_through(parse_own_topic_name(topic_name))
    group = instance.stores.share.get_group(redrive_name(topic.topic_id))
    most = max(1, DEAD_LETTER_RANGES_MAX // len(topic.all_partitions()))
    found = []
    for number, head, state in states_of(instance, topic, None if group is None else group.share_group_id):
        ranges = open_ranges(head, state)
        shown = ranges[-most:]
        found.append(
            PartitionLetters(
                partition=number,
                records=head.count_from(head.log_start_offset),
                open=RecordSet(ranges).count,
                open_ranges=shown,
                ranges_from=shown[0][0] if len(shown) < len(ranges) else head.log_start_offset,
            )
        )
    return found


def states_of(
    instance: Instance, topic: Topic, hidden: ShareGroupId | None
) -> Sequence[tuple[Partition, Head, ShareState]]:
    """Each partition with its head, and what the hidden group of this id has done there."""
    keys = [ShareKey(hidden or ShareGroupId(""), topic.topic_id, number) for number in topic.all_partitions()]
    states = {} if hidden is None else instance.stores.share.find_states(keys)
    heads = instance.stores.log.heads([key.partition_key for key in keys])
    return [
        (key.partition, heads[key.partition_key], states.get(key, ShareState(position=Offset(0))))
        for key in keys
        if key.partition_key in heads
    ]


def open_ranges(head: Head, state: ShareState) -> Ranges:
    """The offsets of a partition that the hidden group has not finished."""
    log = LogBounds.of(head)
    below = RecordSet(state.unfinished()).minus(((0, log.log_start),)).ranges
    fresh = (log.first_fresh(state.position), log.next_offset)
    ranges = normalized((*below, *((fresh,) if fresh[0] < fresh[1] else ())))
    return RecordSet(ranges).minus(ranges_of(log.jumps)).ranges
