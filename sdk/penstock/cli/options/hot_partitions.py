"""Which partition of a topic is hot, by which key, and what helps. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_core.limits import HOT_KEY_SHARE, HOT_PARTITION_FACTOR, HOT_RECORDS_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPartition:
    """A partition that gets far more records than the others do.

    `records` came in the window. `sampled` of its newest records were looked at: `keyless` of them have no key, and
    `key_records` have `key`, the most frequent one. It is None if no record has a key.
    """

    partition: int
    records: int
    sampled: int
    keyless: int
    key: bytes | None
    key_records: int

    @property
    def has_hot_key(self) -> bool:
        """One key makes most of the partition's records."""
        return self.key is not None and self.key_records >= HOT_KEY_SHARE * self.sampled


def hot_partitions(records: Mapping[int, int]) -> list[int]:
    """The partitions with `HOT_PARTITION_FACTOR` times the mean of the others, and `HOT_RECORDS_MIN` records at least.

    `records` came to each writable partition in the window. The hottest is first.
    """
    total = sum(records.values())
    others = max(1, len(records) - 1)
    return [
        partition
        for partition, count in sorted(records.items(), key=lambda each: (-each[1], each[0]))
        if len(records) > 1 and count >= HOT_RECORDS_MIN and count >= HOT_PARTITION_FACTOR * (total - count) / others
    ]


def judged(partition: int, records: int, keys: Sequence[bytes | None]) -> HotPartition:
    """The hot partition by a sample of its newest records' keys."""
    counts = Counter(key for key in keys if key is not None)
    key = max(counts, key=counts.__getitem__, default=None)
    return HotPartition(
        partition=partition,
        records=records,
        sampled=len(keys),
        keyless=len(keys) - counts.total(),
        key=key,
        key_records=0 if key is None else counts[key],
    )


def advice(topic: str, writable: int, hot: Sequence[HotPartition]) -> str:
    """What helps, by the hottest partition."""
    if not hot:
        return "Nothing to do: no partition gets far more records than the others."
    first = hot[0]
    if first.has_hot_key:
        return (
            f"One key makes {first.key_records / first.sampled:.0%} of partition {first.partition}. More partitions do "
            "not help: a key stays in one. If its records need no order among themselves, spread them over several "
            "keys, such as the key with #0 to #3 behind it."
        )
    if first.keyless > first.sampled / 2:
        return (
            f"Most records of partition {first.partition} have no key, so their producers name it. Let producers "
            "choose: send without a partition."
        )
    return (
        f"Several keys meet in partition {first.partition}. Add partitions: "
        f"penstock topics alter {topic} --partitions {2 * writable}"
    )
