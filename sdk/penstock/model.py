"""The values that the SDK takes and gives. All are immutable; times are milliseconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

# A record's headers, in order; a name may come more than once.
Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


# Named tuples where there is one per record: they cost a third of a frozen dataclass.
class RecordMetadata(NamedTuple):
    """Where a delivered record is. `offset` is -1 with acks="none", and where the record was not delivered."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record as read. `value` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic's description. `config` holds the settings that were set; others have their defaults."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, Any]
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """What a partition holds: the offsets `[log_start_offset, high_watermark)`."""

    partition: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic and the offsets of its partitions, by partition."""

    topic: Topic
    offsets: tuple[PartitionOffsets, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone: `state` is in_sync, out_of_sync, catching_up or taken_out, since `since_ms` (0: always) for `reason`."""

    zone: str
    state: str
    version: int
    since_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a group committed for a partition: the offset of the next record to read."""

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at_ms: int
