"""A whole service's stores in one folder: segments in its database, all other stores in memory with a journal there."""

from dataclasses import dataclass
from pathlib import Path

from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.memory.zones import MemoryRepairQueue
from penstock_service.adapters.no_timer_triggers import NoTimerTriggers
from penstock_service.adapters.no_wake_ups import NoWakeUps
from penstock_service.adapters.sqlite import journal, segments
from penstock_service.adapters.sqlite.database import Database
from penstock_service.adapters.sqlite.journal import READS, Journal
from penstock_service.adapters.sqlite.segments import SqliteArchiveStore, SqliteInlineStore, SqliteSegmentStore
from penstock_service.ports.segments import ARCHIVE
from penstock_service.stores import Stores

_ZONES = ("a", "b", "c")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredService:
    """The stores of a folder, and what keeps them on the disk."""

    stores: Stores
    database: Database
    journal: Journal

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
        """Write a snapshot, so that the next start is short, and give up the folder."""
        try:
            if self.database.failure is None:
                self.journal.snapshot()
        finally:
            self.database.close()


def open_service(folder: Path) -> StoredService:
    """The stores of the folder, which is made if it is missing.

    Raises INVALID_CONFIG if another process has it open, if another version wrote it, or if it cannot be trusted.
    """
    database = Database(folder, (*segments.SCHEMA, *journal.SCHEMA))
    try:
        fresh = memory_stores(_ZONES)
        kept = Journal(database, {name: getattr(fresh, name) for name in READS})
        stores = Stores(
            topics=kept.journalled("topics", fresh.topics),
            log=kept.journalled("log", fresh.log),
            groups=kept.journalled("groups", fresh.groups),
            memberships=kept.journalled("memberships", fresh.memberships),
            share=kept.journalled("share", fresh.share),
            push=kept.journalled("push", fresh.push),
            transactions=kept.journalled("transactions", fresh.transactions),
            compaction=kept.journalled("compaction", fresh.compaction),
            timers=kept.journalled("timers", fresh.timers),
            zone_states=kept.journalled("zone_states", fresh.zone_states),
            acls=kept.journalled("acls", fresh.acls),
            cursors=kept.journalled("cursors", fresh.cursors),
            audit=kept.journalled("audit", fresh.audit),
            quotas=kept.journalled("quotas", fresh.quotas),
            zones=[SqliteSegmentStore(database, zone) for zone in _ZONES],
            archive=SqliteArchiveStore(database, ARCHIVE),
            inline=SqliteInlineStore(database),
            repair_queue=MemoryRepairQueue(),  # what it loses, the scrub finds again
            wake_ups=NoWakeUps(),
            timer_triggers=NoTimerTriggers(),
            deliveries=fresh.deliveries,  # what it loses, a look for lag finds again
            targets=fresh.targets,
        )
        database.settle()
    except BaseException:
        database.close()
        raise
    return StoredService(stores=stores, database=database, journal=kept)
