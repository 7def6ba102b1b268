"""A chunk: the records of one transaction, and how far each partition is read with them."""

from collections.abc import Mapping

from penstock_core.limits import IMPORT_CHUNK_BYTES, IMPORT_CHUNK_RECORDS, IMPORT_PARTITIONS_MAX
from penstock_import.copying.placement import KEEP, Placement
from penstock_import.progress.chunk_note import ChunkNote, SourceRange, TargetRange, runs_of
from penstock_import.source.records import ReachedEnd, SourceEvent, SourceRecord

_OVERHEAD_BYTES = 100  # of a record in memory on top of its key, value and headers


class Chunk:
    """Records from `positions` on. It is full at a bound of records, of bytes, or of partitions that take them."""

    def __init__(self, positions: Mapping[int, int], placement: Placement) -> None:
        self.records: list[tuple[int, SourceRecord]] = []  # with the partition that each goes to
        self.positions = dict(positions)  # behind all events that were added
        self.skipped = 0
        self._starts = dict(positions)
        self._placement = placement
        self._counts: dict[int, int] = {}
        self._bytes = 0

    def add(self, event: SourceEvent, *, is_skipped: bool = False) -> bool:
        """Take the event; false if there is no room. A skipped record leaves a gap."""
        if isinstance(event, ReachedEnd):
            self._pass(event.partition, event.offset)
            return True
        if is_skipped:
            self.skipped += 1
            self._pass(event.partition, event.offset + 1)
            return True
        target = self._placement.target(event)
        if self.is_full or (target not in self._counts and len(self._counts) >= IMPORT_PARTITIONS_MAX):
            return False
        self.records.append((target, event))
        self._counts[target] = self._counts.get(target, 0) + 1
        self._bytes += _OVERHEAD_BYTES + len(event.key or b"") + len(event.value or b"")
        self._bytes += sum(len(name) + len(value or b"") for name, value in event.headers)
        self._pass(event.partition, event.offset + 1)
        return True

    @property
    def is_full(self) -> bool:
        """No further record has room."""
        return len(self.records) >= IMPORT_CHUNK_RECORDS or self._bytes >= IMPORT_CHUNK_BYTES

    @property
    def has_moved(self) -> bool:
        """A partition is read further, by a record or by a gap."""
        return self.positions != self._starts

    def note(self, topic_id: str, bounds: Mapping[int, int]) -> ChunkNote:
        """The note that commits with the records. `bounds` has an offset at or below the next one of each partition."""
        offsets: dict[int, list[int]] = {}
        for _, record in self.records:
            offsets.setdefault(record.partition, []).append(record.offset)
        sources = {
            each: SourceRange(
                start=self._starts[each],
                next_offset=self.positions[each],
                runs=runs_of(self._starts[each], offsets.get(each, ())),
            )
            for each in self.positions
            if self.positions[each] != self._starts[each]
        }
        targets = {each: TargetRange(bounds.get(each, 0), count) for each, count in self._counts.items()}
        if self._placement.mode == KEEP:
            targets |= {each: TargetRange(bounds.get(each, 0), 0) for each in sources.keys() - targets.keys()}
        return ChunkNote(topic_id=topic_id, mode=self._placement.mode, sources=sources, targets=targets)

    def ends(self, firsts: Mapping[int, int]) -> Mapping[int, int]:
        """The offset behind the chunk's records in each partition; `firsts` has that of the first record there."""
        return {each: first + self._counts[each] for each, first in firsts.items()}

    def _pass(self, partition: int, offset: int) -> None:
        self.positions[partition] = max(offset, self.positions.get(partition, offset))
