"""A whole service's stores in one folder: segments in its database, and tables in memory whose items are there too.

Queues are in memory alone. After a restart, the work that they asked for is found again: repairs by the scrub, timers
and deliveries by their items (docs/adr/0024).

Segments in the database. The zones of one process share a disk, so they share the bytes: a copy is a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import LIST_KEYS_MAX
from penstock_core.storage.keys import KeyLayout, segment_key
from penstock_service.adapters.absent import NoTimerTriggers, NoWakeUps
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryRepairQueue, MemoryTargets
from penstock_service.adapters.sqlite.database import Database, Items
from penstock_service.adapters.system import SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import Tables
from penstock_service.ports.runtime import Clock
from penstock_service.ports.segments import ARCHIVE, ListedKeys
from penstock_service.stores import Stores

_ZONES = ("a", "b", "c")
_META = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS segment (key TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS copy (zone TEXT, key TEXT, PRIMARY KEY (zone, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS copy_by_key ON copy (key)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredService:
    """The stores of a folder, and what keeps them on the disk."""

    stores: Stores
    tables: Tables
    database: Database

    def settle(self) -> None:
        """As `Database.settle`: all changes before this call survive a crash when it returns."""
        self.database.settle()

    def remembered(self, name: str, value: str) -> str:
        """The value that was first given under that name: it is the same at every later start."""
        found = self.database.read("SELECT value FROM meta WHERE name = ?", (name,))
        if found:
            return str(found[0][0])
        self.database.write("INSERT INTO meta VALUES (?, ?)", (name, value))
        return value

    def close(self) -> None:
        """Settle, and give up the folder."""
        self.database.close()


def open_service(folder: Path, clock: Clock | None = None) -> StoredService:
    """The stores of the folder, which is made if it is missing. Items whose TTL is over are still there.

    Raises INVALID_CONFIG if another process has it open, if this release does not read it, or if it cannot be trusted.
    """
    clock = clock or SystemClock()
    database = Database(folder, (_META, *SCHEMA))
    try:
        items = Items(database)
        tables = Tables(clock.now_ms, items.note)
        items.load(tables)
        database.before_commit(items.write)
        stores = Stores(
            **table_stores(DynamoDbClient(tables, clock, SystemEntropy())),
            zones=[SqliteSegmentStore(database, zone) for zone in _ZONES],
            archive=SqliteArchiveStore(database, ARCHIVE),
            repair_queue=MemoryRepairQueue(),
            wake_ups=NoWakeUps(),
            timer_triggers=NoTimerTriggers(),
            deliveries=MemoryDeliveryQueue(clock),
            targets=MemoryTargets(),
        )
        database.settle()
    except BaseException:
        database.close()
        raise
    return StoredService(stores=stores, tables=tables, database=database)


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
