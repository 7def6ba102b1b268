"""Keeps segments as files of one folder, so that a bench measures Penstock and not an emulator."""

from pathlib import Path

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_service.adapters.memory.segments import MemorySegmentStore


class FolderSegmentStore(MemorySegmentStore):
    """The part of a SegmentStore that a bench needs: one process puts, other processes get."""

    def __init__(self, folder: Path, zone: str) -> None:
        super().__init__(zone)
        self._folder = folder

    def put(self, segment_id: SegmentId, body: bytes, _crc32c: int) -> None:
        (self._folder / segment_id.hex()).write_bytes(body)

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        with (self._folder / segment_id.hex()).open("rb") as file:
            file.seek(position)
            data = file.read(length)
        if len(data) != length:
            raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"{len(data)} of {length} bytes of {segment_id.hex()}")
        return data
