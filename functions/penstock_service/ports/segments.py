"""The ports of segments. `penstock_service.ports` says what all methods raise."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock_core.ids import SegmentId, ZoneName
from penstock_core.storage.keys import KeyLayout

ARCHIVE = "archive"  # the archive's name, where a zone has its own
INLINE = "inline"  # the name of the log table as a place of segments


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKeys:
    """Object keys in no order, and the token of the next part. The token is None after the last part."""

    keys: Sequence[str]
    next_token: str | None


class SegmentStore(Protocol):
    """Segments in one zone, in the archive, or in items of the log table."""

    @property
    def zone(self) -> ZoneName:
        """The zone's name, or `ARCHIVE`, or `INLINE`."""

    @property
    def layout(self) -> KeyLayout:
        """The layout of the keys under which it stores, lists and deletes."""

    @property
    def earlier(self) -> "SegmentStore | None":
        """The same bucket by the keys of an earlier release. None if no release wrote others than this one's.

        `get` and `get_whole` look there for what has no key of this release. The other methods do not.
        """

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        """Stores the whole segment or nothing. The storage checks `crc32c` on arrival.

        A second put of the same segment changes nothing and is no error. One put.
        """

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        """Exactly `length` bytes of the segment, from `position` on.

        Raises STORAGE_UNAVAILABLE if the zone does not answer. If it answers that it has no such segment, the error has
        the fact `is_missing`. Raises CORRUPT_SEGMENT if the segment is too short. One ranged get.
        """

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        """The whole object as it is, good or bad. None if the zone answers that it has none.

        Raises STORAGE_UNAVAILABLE if the zone does not answer. One get.
        """

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        """Stores the segment in place of whatever is there, to heal a bad copy. One put."""

    def list_folders(self) -> Sequence[str]:
        """What the bucket's keys have before their first slash, with the slash, in no order.

        A folder whose first object is stored meanwhile may be missing. One list call for each 1,000 folders.
        """

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        """A part of the keys that begin with `prefix`, which ends in "/".

        Segments that are stored meanwhile may be missing. One list call, for 1,000 keys at most.
        """

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        """Removes at most `DELETE_SEGMENTS_MAX` segments, for ever. A missing segment is no error. One call."""


class ArchiveStore(SegmentStore, Protocol):
    """The one regional bucket for the segments that compaction makes."""

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        """Puts a segment of any size, with a few MiB of it in memory at a time.

        One put, or one call for each part of `ARCHIVE_PART_BYTES` and two more. The bucket's lifecycle removes the
        parts of an upload that died.
        """


class InlineStore(SegmentStore, Protocol):
    """Segments of `INLINE_BYTES_MAX` bytes at most, each an item of the log table. DynamoDB keeps it in three zones.

    A put that has returned is seen by every later read. A put, a get and a delete are a call each; a list of folders
    takes 16 calls and one more for each folder. Lists and deletes do not meet expiring segments.
    """

    def put_expiring(self, segment_id: SegmentId, body: bytes, kept_days: int) -> None:
        """Stores the segment as an item that goes so many days after the time in its id. One put."""

    def get_expiring(self, segment_ids: Sequence[SegmentId]) -> Mapping[SegmentId, bytes]:
        """As `get_wholes`, for expiring segments: those that are still there, and those that are inline items by now.

        One call for each 100, and one more for those that are not there.
        """

    def get_wholes(self, segment_ids: Sequence[SegmentId]) -> Mapping[SegmentId, bytes]:
        """The segments, in no order; a missing one is left out. Consistent. One call for each 100."""
