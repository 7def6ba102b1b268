"""The storage of a stage, as one value for the roles that read and write it."""

from dataclasses import dataclass

from infra.storage.archive import Archive
from infra.storage.tables import Tables
from infra.storage.zones import Zones


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStorage:
    """The three tables, the zones, and the archive."""

    tables: Tables
    zones: Zones
    archive: Archive
