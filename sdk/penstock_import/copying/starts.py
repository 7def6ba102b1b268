"""The offsets from which a copy reads the source: those of its notes, or those that the user names.

The partition of a copied record: the number that it had, or the one that its key hashes to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import ConflictError, InvalidError, OffsetOutOfRangeError, UnknownPartitionError
from penstock.model import Topic
from penstock_core.errors import ErrorCode
from penstock_core.records.partitioner import partition_for_key
from penstock_import.progress.progress_topic import progress_topic
from penstock_import.source.records import PartitionBounds, SourceRecord, SourceTopic

KEEP, REHASH = "keep", "rehash"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """The options of the user for the begin. `offsets` and `from_beginning` are for the first run only.

    `appends` allows a first run into a topic that has records. `skips_expired` goes on behind records that the source
    removed before they were copied.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    from_beginning: bool = False
    appends: bool = False
    skips_expired: bool = False

    @property
    def names_a_start(self) -> bool:
        """The user has said where to begin."""
        return self.from_beginning or bool(self.offsets)

    def again(self) -> "StartSettings":
        """The settings of a later round of the same process: its notes say where to begin."""
        return replace(self, offsets={}, from_beginning=False)


def first_positions(
    settings: StartSettings,
    topic: str,
    held: Mapping[int, PartitionBounds],
    known: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, int]:
    """The offset of each partition to read from. `held` are the source's bounds, `known` what the notes say.

    `ends` are those of the topic that takes the records. Raises ConflictError if the user's start does not fit the
    notes, or the notes do not fit the source, and OffsetOutOfRangeError for records that are gone.
    """
    if known and settings.names_a_start:
        raise ConflictError(
            ErrorCode.CONCURRENT_UPDATE,
            f"the copy to {topic!r} has begun: go on without --from and --from-beginning. To copy anew, delete the "
            f"topics {topic!r} and {progress_topic(topic)!r}",
        )
    if not known and any(ends.values()) and not settings.appends:
        raise ConflictError(
            ErrorCode.CONCURRENT_UPDATE,
            f"topic {topic!r} holds {sum(ends.values()):,} records, and no note of a copy is there: use --append to "
            "copy behind them, or choose another topic by --to",
        )
    unknown = settings.offsets.keys() - held.keys()
    if unknown:
        raise UnknownPartitionError(
            ErrorCode.UNKNOWN_PARTITION, f"--from {min(unknown)}=…: the source has the partitions 0 to {len(held) - 1}"
        )
    return {
        partition: _position(partition, bounds, known.get(partition, settings.offsets.get(partition)), settings)
        for partition, bounds in held.items()
    }


def _position(partition: int, bounds: PartitionBounds, wanted: int | None, settings: StartSettings) -> int:
    if wanted is None:
        return bounds.start
    if wanted > bounds.end:
        raise ConflictError(
            ErrorCode.CONCURRENT_UPDATE,
            f"partition {partition} of the source ends at {bounds.end}, below {wanted}, where the copy is: the topic "
            "was made anew, or lost records. Copy the new one to another topic by --to",
        )
    if wanted >= bounds.start:
        return wanted
    if settings.skips_expired or partition in settings.offsets:
        return bounds.start
    raise OffsetOutOfRangeError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"the source has removed the offsets {wanted} to {bounds.start - 1} of partition {partition} before they were "
        "copied: go on behind them by --skip-expired",
        partition=partition,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`mode` is KEEP or REHASH; the topic takes records in `count` partitions from `first` on.

    Both keep the order of each key: a key's records lie in one partition of the source, and go to one partition. A
    record without a key keeps its number if there is such a partition.
    """

    mode: str
    first: int
    count: int

    def target(self, record: SourceRecord) -> int:
        """The partition that the record goes to."""
        if self.mode == KEEP:
            return record.partition
        if record.key is None:
            return self.first + record.partition % self.count
        return self.first + partition_for_key(record.key, self.count)

    def check(self, partitions: int, source: str, topic: str) -> None:
        """Raise InvalidError if the `partitions` of the source cannot keep their numbers, and should."""
        if self.mode == KEEP and (self.first, self.count) != (0, partitions):
            raise InvalidError(
                ErrorCode.INVALID_REQUEST,
                f"topic {source!r} of Kafka has {partitions} partitions, and topic {topic!r} takes records in "
                f"{self.count} from {self.first} on: create a topic of {partitions} partitions, or use --partitions "
                "rehash, which keeps the order of each key",
            )


def placement_for(mode: str, source: SourceTopic, topic: Topic) -> Placement:
    """The placement of records of `source` in `topic`. Raises InvalidError if they cannot keep their numbers."""
    placement = Placement(mode=mode, first=topic.first_writable_partition, count=topic.writable_partitions)
    placement.check(source.partitions, source.topic, topic.name)
    return placement
