"""The offset at which a group goes on: notes turn its offset at the source into one in Penstock.

An offset stands for the next record to read. So its translation is that of the first copied record at or after it,
whatever gaps compaction and transaction markers have left. A translation is never too late: the group misses no record.
With the same partition numbers it is exact. With rehashed partitions it is the begin of the first chunk that holds a
record that the group has not read, so some records come again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_import.progress.chunk_note import ChunkNote


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Offsets in Penstock by partition. `waiting` are source partitions that are not copied so far yet."""

    offsets: Mapping[int, int]
    waiting: tuple[int, ...] = ()
    first_note: int | None = None  # a later translation of offsets that are no lower may begin to read here


@dataclass(slots=True)
class _Keeping:
    """The search with equal partition numbers: `offset` is settled once a note passes `wanted`."""

    wanted: int
    offset: int | None = None
    tail: int | None = None
    note: int | None = None

    def add(self, at: int, partition: int, note: ChunkNote) -> None:
        found = note.sources[partition]
        target = note.targets.get(partition)
        if self.offset is not None or target is None:
            return
        self.note, self.tail = at, target.bound + target.records
        if self.wanted < found.next_offset:
            self.offset = target.bound + found.records_before(self.wanted)


def translate_kept(
    wanted: Mapping[int, int], reached: Mapping[int, int], notes: Iterable[tuple[int, ChunkNote]]
) -> Translation:
    """Translate offsets by source partition, if records keep their partition numbers.

    `reached` tells how far each partition is copied; notes come in their order, with their offsets.
    """
    searches = {each: _Keeping(offset) for each, offset in wanted.items()}
    for at, note in notes:
        for partition in note.sources.keys() & searches.keys():
            searches[partition].add(at, partition, note)
    offsets: dict[int, int] = {}
    waiting: list[int] = []
    for partition, search in searches.items():
        if search.offset is not None:
            offsets[partition] = search.offset
        elif search.tail is not None and search.wanted <= reached.get(partition, 0):
            offsets[partition] = search.tail  # the group has read every copied record
        else:
            waiting.append(partition)
    begins = [search.note for search in searches.values() if search.note is not None]
    is_complete = len(begins) == len(searches)
    return Translation(
        offsets=offsets, waiting=tuple(sorted(waiting)), first_note=min(begins, default=None) if is_complete else None
    )


def translate_rehashed(wanted: Mapping[int, int], notes: Iterable[tuple[int, ChunkNote]]) -> Translation:
    """Translate offsets by source partition, if the key decides the partition anew.

    The result has an offset for each partition of the topic that the notes name; the first note names all. A partition
    of the source for which the group has no offset counts as unread.
    """
    has_begun = False
    offsets: dict[int, int] = {}
    tails: dict[int, int] = {}
    for _, note in notes:
        has_begun = has_begun or any(
            found.records and wanted.get(each, 0) < found.next_offset for each, found in note.sources.items()
        )
        for partition, target in note.targets.items():
            tails[partition] = target.bound + target.records
            if has_begun:
                offsets.setdefault(partition, target.bound)
    return Translation(offsets=tails | offsets)
