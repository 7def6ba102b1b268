"""The marks of a sweep that takes several runs: ids of live segments, in objects of the archive, by folder of keys.

```
 folders: u32, CRC-32C of the table: u32 | folders x (number: u32, ids: u32, CRC-32C of the ids: u32) | ids
                                                                                                   16 bytes each
```
The folders are those of one `KeyLayout`, by ascending number, and the ids of a folder ascend. A store with directory
buckets has two objects for the same ids: one by the hour for the zones, and one by the two digits for the archive.

An object of marks has the key of a segment that no ref names. It is younger than the cutoff of its own sweep, so that
sweep leaves it. A later sweep removes it, if the sweep that made it never came to its end.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id
from penstock_core.storage.keys import KeyLayout, folder_number
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ArchiveStore

_HEADER = Struct(">II")
_ENTRY = Struct(">III")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """An object of marks, by the folders of one layout."""

    layout: KeyLayout
    segment_id: SegmentId


def put_marks(instance: Instance, ids: Collection[SegmentId], layout: KeyLayout) -> Marks:
    """Stores the ids by the folders of the layout. One put. Raises STORAGE_UNAVAILABLE."""
    folders: dict[int, list[bytes]] = {}
    for segment_id in sorted(ids):
        folders.setdefault(folder_number(segment_id, layout), []).append(segment_id)
    parts = [(number, b"".join(folders[number])) for number in sorted(folders)]
    table = b"".join(_ENTRY.pack(number, len(part) // SEGMENT_ID_BYTES, crc32c(part)) for number, part in parts)
    body = b"".join((_HEADER.pack(len(parts), crc32c(table)), table, *(part for _, part in parts)))
    marks_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    instance.stores.archive.put(marks_id, body, crc32c(body))
    return Marks(layout=layout, segment_id=marks_id)


@dataclass(frozen=True, slots=True)
class MarksReader:
    """Reads objects of marks, and remembers their tables. For one run."""

    archive: ArchiveStore
    marks: Sequence[Marks]
    _tables: dict[SegmentId, list[tuple[int, int, int]]] = field(default_factory=dict)

    def read(self, layout: KeyLayout, numbers: range) -> Iterator[SegmentId]:
        """The ids in these folders of the layout. One get for each object, and two more at its first use.

        Raises STORAGE_UNAVAILABLE, with the fact `is_missing` if an object is gone, and CORRUPT_SEGMENT for a damaged
        one.
        """
        for marks_id in (each.segment_id for each in self.marks if each.layout is layout):
            if marks_id not in self._tables:
                self._tables[marks_id] = self._table(marks_id)
            yield from self._ids(marks_id, self._tables[marks_id], numbers)

    def _table(self, marks_id: SegmentId) -> list[tuple[int, int, int]]:
        folders, checksum = _HEADER.unpack(self.archive.get(marks_id, 0, _HEADER.size))
        table = self.archive.get(marks_id, _HEADER.size, folders * _ENTRY.size) if folders else b""
        if crc32c(table) != checksum:
            raise _damaged(marks_id)
        return list(_ENTRY.iter_unpack(table))

    def _ids(self, marks_id: SegmentId, table: Sequence[tuple[int, int, int]], numbers: range) -> Iterator[SegmentId]:
        first = sum(count for number, count, _ in table if number < numbers.start)
        wanted = [(count, checksum) for number, count, checksum in table if number in numbers]
        total = sum(count for count, _ in wanted)
        if not total:
            return
        start = _HEADER.size + len(table) * _ENTRY.size + first * SEGMENT_ID_BYTES
        ids = self.archive.get(marks_id, start, total * SEGMENT_ID_BYTES)
        at = 0
        for count, checksum in wanted:
            part = ids[at : at + count * SEGMENT_ID_BYTES]
            if crc32c(part) != checksum:
                raise _damaged(marks_id)
            yield from (SegmentId(part[i : i + SEGMENT_ID_BYTES]) for i in range(0, len(part), SEGMENT_ID_BYTES))
            at += len(part)


def _damaged(marks_id: SegmentId) -> PenstockError:
    return PenstockError(
        ErrorCode.CORRUPT_SEGMENT, f"the marks {marks_id.hex()} of a sweep are damaged: nothing was swept"
    )
