"""The effects of a change of a topic's writable partitions, in words."""

from collections.abc import Iterable, Iterator
from math import lcm

from penstock.model import PartitionOffsets, TopicDescription
from penstock_core.limits import UNLIMITED


def records_of(partition: PartitionOffsets) -> int:
    """The number of offsets that the partition holds."""
    return partition.high_watermark - partition.log_start_offset


def stored_bytes_of(partitions: Iterable[PartitionOffsets]) -> int | None:
    """The stored bytes of the partitions together, None for a service that does not tell them."""
    told = [each.stored_bytes for each in partitions]
    return None if None in told else sum(each or 0 for each in told)


def moved_share(old: int, new: int) -> float:
    """The share of keys that go to another partition once `new` partitions are writable, not `old`.

    A hash keeps its partition if both remainders are equal: one hash in `lcm(old, new)` for each common partition.
    """
    return 1 - min(old, new) / lcm(old, new)


def preview(described: TopicDescription, partitions: int) -> Iterator[str]:
    """Lines that say what happens if `partitions` of the topic are writable. None if that is so already."""
    topic = described.topic
    old = topic.writable_partitions
    first = topic.first_writable_partition
    if partitions == old:
        return
    if topic.config.get("ordering_on_change") == "wait":
        closing = [each for each in described.offsets if first <= each.partition < first + old]
        yield (
            f"{_numbers(first, first + old)} no new records. {sum(map(records_of, closing)):,} records stay readable "
            f"there. {partitions:,} new partitions take the records from then on. Groups read them once they have "
            "committed the older ones to their ends, so each key keeps its order."
        )
        return
    if partitions < old:
        closing = [each for each in described.offsets if first + partitions <= each.partition < first + old]
        count = sum(map(records_of, closing))
        yield (
            f"{_numbers(first + partitions, first + old)} no new records. {count:,} records stay readable there. "
            "Delayed records that wait there still come."
        )
        yield _end(described)
    elif first + partitions <= topic.partitions:
        yield f"{_numbers(first + old, first + partitions)} new records again, and offsets go on."
    yield (
        f"{moved_share(old, partitions):.0%} of the keys go to another partition from then on. Across the change, a "
        "consumer may read records of such a key out of order."
    )


def _numbers(start: int, end: int) -> str:
    return f"Partition {start} takes" if end - start == 1 else f"Partitions {start} to {end - 1} take"


def _end(described: TopicDescription) -> str:
    config = described.topic.config
    is_kept = config.get("retention_ms") == UNLIMITED or "delete" not in str(config.get("cleanup_policy", "delete"))
    if is_kept and config.get("retention") != "acknowledged":
        return "Retention removes nothing there: truncate them once they are read, and they go after an hour."
    return "They go once retention has removed their records, and an hour has passed."
