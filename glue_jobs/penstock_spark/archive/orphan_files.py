"""`archive --remove-orphans`: removes data files of killed runs, which no snapshot of an Iceberg table has.

No file may go that a run may still commit, and runs take no lease. This is the rule, and why it holds. A file goes if

1. no snapshot that the table keeps has a file of that day and name, wherever: engines may write paths in other forms;
2. it has a name that archive makes, so files of other engines stay;
3. it was put a day before the table's current snapshot was made, or earlier;
4. if it is a plan's, the table has committed that plan.

Files of a plan: only the next plan is ever committed, and its number is above those that go. A rolled-back table has
lower numbers committed, so the files of what was rolled back stay, too.

Joined, rebuilt and latest files: a run commits such files only on top of the snapshot that it planned on, and their
names are digests of that snapshot. The current snapshot is younger than a file that goes. So a run that planned on it
neither writes nor finds that name, and a run that planned before it cannot commit. The day is for clocks that differ.
Two tables at one place may have files in common: a second catalog finds the plans and files of the first one. So
nothing goes if the folder of metadata has that of another table (IcebergTable.kept_files).
Only a table that is rolled back during the removal breaks this: docs/reference/archived-tables.md forbids that.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from penstock_spark.result_store import ResultStore, StoredObject

ORPHANS_MAX = 10_000  # that one run removes; the next goes on
MARGIN_MS = 24 * 3_600_000
_NAMES = re.compile(
    r"(?P<plan>\d{12})-\d{5}(?:-[0-9a-f]{16})?\.parquet"
    r"|(?:rebuild-[0-9a-f]{16}-\d{6}|latest-[0-9a-f]{16}-\d{5}|merged-[0-9a-f]{16})(?:-[0-9a-f]{16})?\.parquet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """The files of all snapshots of a table, by folder and name; the newest commit, the current snapshot."""

    table: str
    names: frozenset[str]
    committed: int
    snapshot_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFiles:
    """The files that a run has removed."""

    files: int
    file_bytes: int


def remove_orphans(lake: ResultStore, kept: KeptFiles) -> RemovedFiles:
    """Remove at most `ORPHANS_MAX` files. One list for each 1,000 files of the table, and a delete for each that goes.

    `kept` must have been read before this call.
    """
    found = [*islice(orphans(lake.objects(f"{kept.table}/data/"), kept), ORPHANS_MAX)]
    for each in found:
        lake.remove(each.path)
    return RemovedFiles(files=len(found), file_bytes=sum(each.size for each in found))


def last_two(path: str) -> str:
    """The folder and the name of a file, such as `day=2026-11-21/merged-0123456789abcdef.parquet`."""
    return "/".join(path.split("/")[-2:])


def orphans(objects: Iterable[StoredObject], kept: KeptFiles) -> Iterator[StoredObject]:
    """The objects that the rule lets go."""
    for each in objects:
        place = last_two(each.path)
        name = _NAMES.fullmatch(place.rpartition("/")[2])
        is_old = each.put_ms + MARGIN_MS <= kept.snapshot_ms
        if name is not None and is_old and place not in kept.names and int(name["plan"] or 0) <= kept.committed:
            yield each
