"""The note of one chunk. It commits in one transaction with the chunk's records, so it is true whatever dies when.

A note is a record of the progress topic. Its key is the source's identity, its value this JSON:

    {"v": 1, "topic_id": "…", "mode": "keep",
     "sources": {"0": {"from": 100, "next": 120, "runs": [0, 15, 2, 3]}},
     "targets": {"0": [57, 18]}}

The chunk has the records of source partition 0 in `[from, next)`. `runs` alternates between offsets without a record
and offsets with one: 15 records, a gap of 2, 3 records. `targets` has a bound and a count for each partition that takes
records: the first of the 18 records lies at the bound or behind it. If no other producer writes, it lies exactly there.

The first note of an import has no records. It tells where each partition begins.

The offset at which a group goes on: notes turn its offset at the source into one in Penstock.

An offset stands for the next record to read. So its translation is that of the first copied record at or after it,
whatever gaps compaction and transaction markers have left. A translation is never too late: the group misses no record.
With the same partition numbers it is exact. With rehashed partitions it is the begin of the first chunk that holds a
record that the group has not read, so some records come again.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """The offsets `[start, next_offset)` of one source partition, and which of them have records: see `runs`."""

    start: int
    next_offset: int
    runs: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """The number of records in the range."""
        return sum(self.runs[1::2])

    def records_before(self, offset: int) -> int:
        """The number of those records that lie below `offset`."""
        at, count = self.start, 0
        for gap, run in _pairs(self.runs):
            at += gap
            if offset <= at:
                break
            count += min(run, offset - at)
            at += run
        return count


class TargetRange(NamedTuple):
    """So many `records` of a chunk in one partition; the first of them lies at `bound` or behind it."""

    bound: int
    records: int


def runs_of(start: int, offsets: Iterable[int]) -> tuple[int, ...]:
    """The runs of rising offsets, all at or above `start`."""
    runs: list[int] = []
    at = start
    for offset in offsets:
        if runs and offset == at:
            runs[-1] += 1
        else:
            runs += [offset - at, 1]
        at = offset + 1
    return tuple(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkNote:
    """The ranges that one transaction has copied: of the source's partitions, and in those of the topic."""

    topic_id: str
    mode: str
    sources: Mapping[int, SourceRange]
    targets: Mapping[int, TargetRange] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The note as the value of its record."""
        sources = {
            str(each): {"from": found.start, "next": found.next_offset, "runs": found.runs}
            for each, found in self.sources.items()
        }
        targets = {str(each): found for each, found in self.targets.items()}
        note = {"v": _VERSION, "topic_id": self.topic_id, "mode": self.mode, "sources": sources, "targets": targets}
        return json.dumps(note, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "ChunkNote":
        """A note from its record. Raises InvalidError for bytes that are none, or of a later release."""
        try:
            found = json.loads(value)
            version = found["v"]
            if version == _VERSION:
                return _decoded(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidError(
                ErrorCode.UNSUPPORTED_FORMAT, f"the progress topic has a record that is no note: {value[:100]!r}"
            ) from error
        raise InvalidError(
            ErrorCode.UNSUPPORTED_FORMAT, f"a note of version {version!r:.20}: a later release has written it; use that"
        )


def _decoded(found: Mapping[str, Any]) -> ChunkNote:
    return ChunkNote(
        topic_id=str(found["topic_id"]),
        mode=str(found["mode"]),
        sources={
            int(each): SourceRange(start=int(one["from"]), next_offset=int(one["next"]), runs=tuple(one["runs"]))
            for each, one in found["sources"].items()
        },
        targets={
            int(each): TargetRange(int(bound), int(records)) for each, (bound, records) in found["targets"].items()
        },
    )


def _pairs(runs: Iterable[int]) -> Iterable[tuple[int, int]]:
    values = iter(runs)
    return zip(values, values, strict=False)


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
