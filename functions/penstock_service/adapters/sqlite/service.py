"""A whole service's stores in one folder: segments in its database, and tables in memory whose items are there too.

Queues are in memory alone. After a restart, the work that they asked for is found again: repairs by the scrub, timers
and deliveries by their items (docs/adr/0024).
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from penstock_service.adapters.absent import NoTimerTriggers, NoWakeUps
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.table_stores import table_stores
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, MemoryRepairQueue, MemoryTargets
from penstock_service.adapters.sqlite import segments
from penstock_service.adapters.sqlite.database import Database
from penstock_service.adapters.sqlite.items import Items
from penstock_service.adapters.sqlite.segments import SqliteArchiveStore, SqliteSegmentStore
from penstock_service.adapters.system import SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import Tables
from penstock_service.ports.runtime import Clock
from penstock_service.ports.segments import ARCHIVE
from penstock_service.stores import Stores

_ZONES = ("a", "b", "c")
_META = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


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
    """The stores of the folder, which is made if it is missing.

    Raises INVALID_CONFIG if another process has it open, if this release does not read it, or if it cannot be trusted.
    """
    clock = clock or SystemClock()
    database = Database(folder, (_META, *segments.SCHEMA))
    try:
        items = Items(database)
        tables = Tables(clock.now_ms, items.note)
        items.load(tables)
        database.before_commit(items.write)
        tables.expire(sys.maxsize)
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
