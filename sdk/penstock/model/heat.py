"""The partitions and keys of the newest records of a topic: value objects for you and for the console."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.limits import HOT_KEY_SHARE


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHeat:
    """The records that came to each writable partition in the last `since_ms`, the partitions that are hot, and advice.

    The hottest partition is first in `hot`, which has `HOT_SAMPLED_PARTITIONS_MAX` at most.
    """

    topic: str
    since_ms: int
    records: Mapping[int, int]
    hot: tuple[HotPartition, ...]
    advice: str
