"""The values and the port of a source: records, ends of partitions, and the reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from penstock_core.records.codec import Headers


class SourceRecord(NamedTuple):
    """A record of the source. `timestamp_ms` is None if the source's record has no time."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class ReachedEnd(NamedTuple):
    """The reader has passed all that a partition holds below `offset`. Markers and gaps count as passed."""

    partition: int
    offset: int


SourceEvent: TypeAlias = SourceRecord | ReachedEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of a Kafka cluster. `cluster` is the cluster's own id, whatever address it was reached by."""

    cluster: str
    topic: str
    partitions: int

    @property
    def identity(self) -> str:
        """The name under which progress is noted."""
        return f"kafka:{self.cluster}/{self.topic}"


class PartitionBounds(NamedTuple):
    """The offsets that a partition holds: `[start, end)`. `end` is the last stable offset."""

    start: int
    end: int


class TopicSource(Protocol):
    """One topic of a Kafka cluster. Reading it leaves no trace there: no group, no commit."""

    def describe(self) -> SourceTopic:
        """Raises NotFoundError for an unknown topic, and UnavailableError if no broker answers."""

    def topic_settings(self) -> Mapping[str, str]:
        """The topic's settings by their Kafka names, without those that the source does not tell."""

    def bounds(self) -> Mapping[int, PartitionBounds]:
        """The bounds of all partitions now."""

    def start(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on. Events that were not read before are gone."""

    def read(self, wait_ms: int) -> Sequence[SourceEvent]:
        """The next events, each partition in order; none after `wait_ms`.

        Raises OffsetOutOfRangeError if a position is gone, and UnavailableError if brokers are silent for long.
        """

    def lag(self, positions: Mapping[int, int]) -> int:
        """About how many offsets lie behind these positions, from what the reader knows. No request."""

    def committed(self, group: str) -> Mapping[int, int]:
        """The offsets that a group of the source has committed, by partition; empty for an unknown group."""

    def close(self) -> None:
        """End the connections."""
