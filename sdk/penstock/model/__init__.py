"""The values that the SDK takes and gives. All are immutable; times are milliseconds since 1970."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock_core.errors import PenstockError

__all__ = [
    "CommittedOffset",
    "ConsumerRecord",
    "GroupOffset",
    "Headers",
    "HeadersToSend",
    "OffsetAndTimestamp",
    "PartitionOffsets",
    "RecordMetadata",
    "ScheduledRecords",
    "Topic",
    "TopicDescription",
    "TopicPartition",
    "UndecodableBatch",
    "Zone",
]

# A record's headers, in order; a name may come more than once.
Headers = tuple[tuple[str, bytes | None], ...]
# What `send` takes: a dict, or pairs. Text is sent as UTF-8.
HeadersToSend = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


# The values that exist once per record are named tuples: they cost a third of a frozen dataclass.
class RecordMetadata(NamedTuple):
    """The place of a delivered record. `offset` is -1 with acks="none", and if the record was not delivered.

    A delayed record has no offset before it comes, so it is -1, and `deliver_at_ms` says when it comes. One that you
    sent as `cancellable` has the `scheduled_id` that `Admin.cancel_scheduled` takes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    deliver_at_ms: int | None = None
    scheduled_id: str | None = None


class ConsumerRecord(NamedTuple):
    """A record as read. A value of None is a tombstone.

    Key and value are bytes, or what the consumer's deserializers make of them.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class ScheduledRecords(NamedTuple):
    """Delayed records that wait together. Cancelling `scheduled_id` cancels all of them."""

    scheduled_id: str
    partition: int
    deliver_at_ms: int
    records: int
    bytes: int


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time.

    `timestamp_ms` is -1 where the service has stopped its search at a batch: then no earlier record is at or after it.
    """

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecodableBatch:
    """A batch whose records cannot be read, though it is as its producer sent it.

    It covers the offsets `[base_offset, next_offset)`. The consumer has returned the records below `offset`. `data` is
    the whole batch in Kafka's RecordBatch v2 layout; `error` says why it cannot be read.
    """

    topic: str
    partition: int
    offset: int
    base_offset: int
    next_offset: int
    data: bytes
    error: PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic's description. `config` holds the settings that were set; the other settings have their defaults.

    New records go to `writable_partitions` of its `partitions`, from `first_writable_partition` on. The others drain:
    they take no new records, and the last ones go once retention has emptied them.

    `mirror` is there for a topic that another stage writes: `name`, `topic_id` of the source's topic, and `source`, the
    URL of that stage. `move` is there for one that was moved to its mirror: its number `move`, the `state` (moved,
    reopening, or open once it was given up), the `mirror`, its `url`, and the `topic` there.
    """

    name: str
    topic_id: str
    partitions: int
    writable_partitions: int
    config: Mapping[str, Any]
    created_at_ms: int
    first_writable_partition: int = 0
    mirror: Mapping[str, Any] | None = None
    move: Mapping[str, Any] | None = None

    @property
    def is_compacted(self) -> bool:
        """Compaction keeps the latest record of each key, so each new record needs a key."""
        return "compact" in str(self.config.get("cleanup_policy", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedPartition:
    """The end of a mirrored log at its promotion, and the time at which its newest records came to the source.

    The time is in milliseconds since 1970, None for a log without records.
    """

    partition: int
    promoted_at: int
    appended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """The offset that a group of the source had committed for a partition, which no group of this stage has yet.

    For a share group it is the first offset that was not finished.
    """

    group: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotedTopic:
    """The partitions of a promoted topic, and the offsets of the source's groups, of both kinds, that the mirror knows.

    No offset lies beyond its partition. The source read them at `groups_read_ms`, None if it never did. It left out
    `groups_left_out` groups, for want of room.
    """

    partitions: Sequence[PromotedPartition]
    groups: Sequence[GroupPlace]
    share_groups: Sequence[GroupPlace] = ()
    groups_read_ms: int | None = None
    groups_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """The end of a partition that moves to its mirror, which has the records below `mirrored_offset`, and lacks `lag`.

    `appended_ms` is the time of its newest records, in milliseconds since 1970, None for a log without records.
    """

    partition: int
    log_id: str
    end_offset: int
    mirrored_offset: int
    lag: int
    appended_ms: int | None

    @property
    def is_mirrored(self) -> bool:
        """The mirror has all that there is."""
        return self.mirrored_offset >= self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTopic:
    """A move of a topic to the `topic` at the stage `url`, by the number `move`. `source` are the topic's settings.

    The mirror was told of `timers`: batches of delayed records that wait. It is None before all were told once, and for
    a source that tells none. `are_timers_told`: the mirror has all that wait since the move.
    """

    move: int
    state: str
    mirror: str
    url: str
    topic: str
    source: Mapping[str, Any]
    partitions: Sequence[MovedPartition]
    timers: int | None = None
    are_timers_told: bool = True

    @property
    def is_mirrored(self) -> bool:
        """The mirror has all that there is. Its last answers said so."""
        return all(each.is_mirrored for each in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets that a partition holds: `[log_start_offset, high_watermark)`. Its `state` is active or draining.

    `stored_bytes` are the bytes of its records, one copy of each, as an estimate once retention has removed some. It is
    None for a service that does not tell it. A log that was a mirror ended at `promoted_at` then.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    state: str
    stored_bytes: int | None = None
    promoted_at: int | None = None


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
    """The offset that a group has committed for a partition: that of the next record to read.

    `leader_epoch` is what a Kafka client committed with it, None if it named none.
    """

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at_ms: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """An offset to commit with a transaction, and the lease that permits it: None without a member.

    `topic_id` is the topic that was read, None if it is not known.
    """

    group: str
    partition: TopicPartition
    offset: int
    member_id: str | None = None
    instance_id: str | None = None
    lease_epoch: int | None = None
    topic_id: str | None = None

    def to_json(self) -> dict[str, object]:
        """The offset as the HTTP API takes it."""
        fields = {
            "group": self.group,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "lease_epoch": self.lease_epoch,
            "topic_id": self.topic_id,
        }
        return {name: value for name, value in fields.items() if value is not None}
