"""The partition of a copied record: the number that it had, or the one that its key hashes to."""

from dataclasses import dataclass

from penstock.errors import InvalidError
from penstock.model import Topic
from penstock_core.errors import ErrorCode
from penstock_core.records.partitioner import partition_for_key
from penstock_import.source.records import SourceRecord, SourceTopic

KEEP, REHASH = "keep", "rehash"


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
