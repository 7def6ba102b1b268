"""A zone whose keys begin with the hour, and in which segments of an earlier release may have their old keys."""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.storage.keys import KeyLayout
from penstock_service.ports.segments import ListedKeys, SegmentStore


class ByHourSegmentStore:
    """SegmentStore over two of the same bucket: `current` by the keys of this release, `earlier` by the old ones.

    It stores, lists and deletes by the keys of this release only. A read that finds no such key asks for the old one:
    one get more for a segment that the zone lacks, and none for a segment that it holds. The sweep removes what has old
    keys by `earlier` (docs/adr/0037).
    """

    def __init__(self, current: SegmentStore, earlier: SegmentStore) -> None:
        self.current = current
        self._earlier = earlier

    @property
    def zone(self) -> ZoneName:
        return self.current.zone

    @property
    def layout(self) -> KeyLayout:
        return self.current.layout

    @property
    def earlier(self) -> SegmentStore:
        return self._earlier

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.current.put(segment_id, body, crc32c)

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        try:
            return self.current.get(segment_id, position, length)
        except PenstockError as error:
            if not error.facts.get("is_missing"):
                raise
        return self._earlier.get(segment_id, position, length)

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        found = self.current.get_whole(segment_id)
        return self._earlier.get_whole(segment_id) if found is None else found

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.current.overwrite(segment_id, body, crc32c)

    def list_folders(self) -> Sequence[str]:
        return self.current.list_folders()

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        return self.current.list_keys(prefix, token)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        self.current.delete(segment_ids)
