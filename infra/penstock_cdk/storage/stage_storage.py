"""The storage of a stage, as one value for the roles that read and write it."""

from dataclasses import dataclass

from penstock_cdk.storage.archive import Archive
from penstock_cdk.storage.tables import Tables
from penstock_cdk.storage.zones import Zones


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStorage:
    """The three tables, the zones, and the archive."""

    tables: Tables
    zones: Zones
    archive: Archive
