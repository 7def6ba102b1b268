"""Segments in the database. The zones of one process share a disk, so they share the bytes: a copy is a row."""

from collections.abc import Iterable, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import LIST_KEYS_MAX
from penstock_core.storage.keys import KeyLayout, segment_key
from penstock_service.adapters.sqlite.database import Database
from penstock_service.ports.segments import ListedKeys

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS segment (key TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS copy (zone TEXT, key TEXT, PRIMARY KEY (zone, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS copy_by_key ON copy (key)",
)


class SqliteSegmentStore:
    """SegmentStore of one zone: the port documents its methods."""

    layout = KeyLayout.SPREAD
    earlier = None

    def __init__(self, database: Database, zone: str) -> None:
        self._database = database
        self._zone = ZoneName(zone)

    @property
    def zone(self) -> ZoneName:
        return self._zone

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - no network lies between
        key = segment_key(segment_id)
        with self._database.held():
            self._database.write("INSERT OR IGNORE INTO segment VALUES (?, ?)", (key, body))
            self._database.write("INSERT OR IGNORE INTO copy VALUES (?, ?)", (self._zone, key))

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        rows = self._database.read(
            "SELECT substr(body, ?, ?) FROM segment JOIN copy USING (key) WHERE zone = ? AND key = ?",
            (position + 1, length, self._zone, segment_key(segment_id)),
        )
        if not rows:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"zone {self._zone} has no segment {segment_id.hex()}",
                is_missing=True,
            )
        data = bytes(rows[0][0])
        if len(data) != length:
            raise PenstockError(
                ErrorCode.CORRUPT_SEGMENT,
                f"zone {self._zone} holds {len(data)} of {length} bytes from {position} of segment {segment_id.hex()}",
            )
        return data

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        rows = self._database.read(
            "SELECT body FROM segment JOIN copy USING (key) WHERE zone = ? AND key = ?",
            (self._zone, segment_key(segment_id)),
        )
        return bytes(rows[0][0]) if rows else None

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - as put
        key = segment_key(segment_id)
        with self._database.held():
            self._database.write("INSERT OR REPLACE INTO segment VALUES (?, ?)", (key, body))
            self._database.write("INSERT OR IGNORE INTO copy VALUES (?, ?)", (self._zone, key))

    def list_folders(self) -> Sequence[str]:
        rows = self._database.read(
            "SELECT DISTINCT substr(key, 1, instr(key, '/')) FROM copy WHERE zone = ?", (self._zone,)
        )
        return [folder for (folder,) in rows]

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        rows = self._database.read(
            "SELECT key FROM copy WHERE zone = ? AND key >= ? AND key < ? AND key > ? ORDER BY key LIMIT ?",
            (self._zone, prefix, end, token or "", LIST_KEYS_MAX + 1),
        )
        keys = [key for (key,) in rows[:LIST_KEYS_MAX]]
        return ListedKeys(keys=keys, next_token=keys[-1] if len(rows) > LIST_KEYS_MAX else None)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        for key in map(segment_key, segment_ids):
            with self._database.held():
                self._database.write("DELETE FROM copy WHERE zone = ? AND key = ?", (self._zone, key))
                self._database.write(
                    "DELETE FROM segment WHERE key = ? AND key NOT IN (SELECT key FROM copy WHERE key = ?)",
                    (key, key),
                )


class SqliteArchiveStore(SqliteSegmentStore):
    """ArchiveStore: the port documents its methods. It holds the whole segment in memory for a moment."""

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        self.put(segment_id, b"".join(chunks), 0)
