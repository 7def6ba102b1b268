"""A topic of Kafka in memory. It has gaps where its user leaves them, as markers and compaction do."""

from collections.abc import Mapping, Sequence

from penstock_import.source.records import PartitionBounds, ReachedEnd, SourceEvent, SourceRecord, SourceTopic


class MemorySource:
    """A TopicSource. `limit` is how many events one read answers."""

    def __init__(self, partitions: int = 1, *, limit: int = 4, cluster: str = "c1") -> None:
        self.records: list[list[SourceRecord]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.starts = [0] * partitions
        self.groups: dict[str, dict[int, int]] = {}
        self.settings: dict[str, str] = {}
        self._limit = limit
        self._cluster = cluster
        self._positions: dict[int, int] = {}
        self._told: set[int] = set()

    def add(self, partition: int, key: bytes | None, value: bytes | None, *, gap: int = 0) -> int:
        """Append a record behind `gap` offsets that hold none. Returns its offset."""
        offset = self.ends[partition] + gap
        self.records[partition].append(SourceRecord(partition, offset, 1_000 + offset, key, value, (("n", b"1"),)))
        self.ends[partition] = offset + 1
        return offset

    def grow(self, partitions: int) -> None:
        """Have so many partitions. A reader that has begun does not know the new ones."""
        new = partitions - len(self.records)
        self.records += [[] for _ in range(new)]
        self.ends += [0] * new
        self.starts += [0] * new

    def mark(self, partition: int) -> None:
        """Append an offset without a record."""
        self.ends[partition] += 1

    def describe(self) -> SourceTopic:
        return SourceTopic(cluster=self._cluster, topic="orders", partitions=len(self.records))

    def topic_settings(self) -> Mapping[str, str]:
        return self.settings

    def bounds(self) -> Mapping[int, PartitionBounds]:
        return {
            each: PartitionBounds(start, end)
            for each, (start, end) in enumerate(zip(self.starts, self.ends, strict=True))
        }

    def start(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)
        self._told = set()

    def read(self, wait_ms: int) -> Sequence[SourceEvent]:
        events: list[SourceEvent] = []
        for partition, at in self._positions.items():
            waiting = [each for each in self.records[partition] if each.offset >= at][: self._limit]
            events += waiting
            self._positions[partition] = waiting[-1].offset + 1 if waiting else self.ends[partition]
            if not waiting and partition not in self._told:
                events.append(ReachedEnd(partition, self.ends[partition]))
                self._told.add(partition)
            elif waiting:
                self._told.discard(partition)
        return events

    def lag(self, positions: Mapping[int, int]) -> int:
        return sum(max(0, self.ends[each] - at) for each, at in positions.items())

    def committed(self, group: str) -> Mapping[int, int]:
        return self.groups.get(group, {})

    def close(self) -> None:
        pass
