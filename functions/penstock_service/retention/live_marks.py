"""The marks of a sweep that takes several runs: ids of live segments, in objects of the archive, by key prefix.

```
 256 x (count: u32, CRC-32C of the ids: u32) | ids of prefix 0, sorted | ids of prefix 1 | …      16 bytes each
```
An object of marks has the key of a segment that no ref names. It is younger than the cutoff of its own sweep, so that
sweep leaves it. A later sweep removes it, if the sweep that made it never came to its end.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from struct import Struct

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id
from penstock_core.storage.keys import SEGMENT_PREFIXES, prefix_number
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import ArchiveStore

_ENTRY = Struct(">II")
_HEADER_BYTES = SEGMENT_PREFIXES * _ENTRY.size


def put_marks(instance: Instance, ids: Collection[SegmentId]) -> SegmentId:
    """Stores the ids and gives the object's id. One put. Raises STORAGE_UNAVAILABLE."""
    by_prefix: list[list[bytes]] = [[] for _ in range(SEGMENT_PREFIXES)]
    for segment_id in sorted(ids):
        by_prefix[prefix_number(segment_id)].append(segment_id)
    parts = [b"".join(each) for each in by_prefix]
    header = b"".join(_ENTRY.pack(len(part) // SEGMENT_ID_BYTES, crc32c(part)) for part in parts)
    body = header + b"".join(parts)
    marks_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    instance.stores.archive.put(marks_id, body, crc32c(body))
    return marks_id


def read_marks(archive: ArchiveStore, objects: Sequence[SegmentId], prefixes: range) -> Iterator[SegmentId]:
    """The ids with one of these prefixes in any of the objects. Two gets for each object.

    Raises STORAGE_UNAVAILABLE, with the fact `is_missing` if an object is gone, and CORRUPT_SEGMENT for a damaged one.
    """
    for marks_id in objects:
        entries = list(_ENTRY.iter_unpack(archive.get(marks_id, 0, _HEADER_BYTES)))
        ends = list(accumulate(count * SEGMENT_ID_BYTES for count, _ in entries))
        start = ends[prefixes.start - 1] if prefixes.start else 0
        if start == ends[prefixes.stop - 1]:
            continue
        ids = archive.get(marks_id, _HEADER_BYTES + start, ends[prefixes.stop - 1] - start)
        for prefix in prefixes:
            count, checksum = entries[prefix]
            part = ids[ends[prefix] - count * SEGMENT_ID_BYTES - start : ends[prefix] - start]
            if crc32c(part) != checksum:
                raise PenstockError(
                    ErrorCode.CORRUPT_SEGMENT, f"the marks {marks_id.hex()} of a sweep are damaged: nothing was swept"
                )
            for at in range(0, len(part), SEGMENT_ID_BYTES):
                yield SegmentId(part[at : at + SEGMENT_ID_BYTES])
