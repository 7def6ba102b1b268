"""Where a consumer starts in a partition: the group's committed offset, else what `auto_offset_reset` says."""

from collections.abc import Collection, Iterable, Mapping

from penstock import calls
from penstock.arguments import check_mapping, checked_partition, checked_partitions
from penstock.errors import NoOffsetError
from penstock.fetch_buffer import OffsetReset
from penstock.model import OffsetAndTimestamp, TopicPartition
from penstock.steps import Calls


def find_start_offsets(
    partitions: Collection[TopicPartition],
    *,
    group_id: str | None,
    offset_reset: OffsetReset,
    appeared: Collection[TopicPartition],
) -> Calls[dict[TopicPartition, int]]:
    """The offset to start at, for each partition.

    Partitions in `appeared` came while the consumer was reading: they start at their beginning, whatever
    `offset_reset` says, so that none of their records is missed. Costs one call for the group, and one per topic and
    reset. Raises NoOffsetError.
    """
    starts: dict[TopicPartition, int] = {}
    if group_id is not None:
        committed = yield from calls.committed_offsets(group_id)
        starts = {each: committed[each].offset for each in partitions if each in committed}
    missing = [each for each in partitions if each not in starts]
    starts |= yield from listed_offsets([each for each in missing if each in appeared], "earliest")
    missing = [each for each in missing if each not in starts]
    if missing and offset_reset == "none":
        where = f"group {group_id!r} has no committed offset" if group_id else "there is no group"
        raise NoOffsetError(
            f"no offset to start at in {missing[0].topic}[{missing[0].partition}]: {where}, and auto_offset_reset is "
            "'none'; seek() first, or use 'earliest' or 'latest'"
        )
    return starts | (yield from listed_offsets(missing, offset_reset))


def listed_offsets(partitions: Iterable[TopicPartition], timestamp: str) -> Calls[dict[TopicPartition, int]]:
    """The earliest or latest offset of each partition: one call per topic."""
    found = yield from offsets_at(dict.fromkeys(checked_partitions(partitions), timestamp))
    return {partition: at.offset for partition, at in found.items() if at is not None}


def offsets_at(
    timestamps: Mapping[TopicPartition, int | str],
) -> Calls[dict[TopicPartition, OffsetAndTimestamp | None]]:
    """The first record at or after each partition's time: one call per topic and time."""
    check_mapping("timestamps", timestamps, "{TopicPartition('orders', 0): 1_760_000_000_000}")
    timestamps = {checked_partition("timestamps: partition", each): at for each, at in timestamps.items()}
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    for timestamp in dict.fromkeys(timestamps.values()):
        asked = [partition for partition, each in timestamps.items() if each == timestamp]
        for topic, numbers in calls.by_topic(asked).items():
            answer = yield from calls.list_offsets(topic, timestamp, numbers[0] if len(numbers) == 1 else None)
            found |= {TopicPartition(topic, number): answer.get(number) for number in numbers}
    return found
