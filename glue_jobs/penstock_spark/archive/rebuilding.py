"""`archive --rebuild`: types the whole history of a table anew, by the newest schema.

    snapshot S: its files ─ each is read, and written with the new columns ─ one commit: new columns, new files for old

The table keeps each value as it was sent, so typing needs no log. A rebuild has an id: a digest of the snapshot, the
schema and the columns. Its files have names of that id, and are put only if they do not exist. So a run after a kill
finds what the killed one wrote, and a task that Spark repeats writes the same file. The commit holds only on top of the
snapshot and the columns that were read. If another writer was faster, nothing has changed, and the next run begins anew
under another id. The files of a rebuild that was never committed belong to no snapshot: an engine's removal of orphan
files takes them away.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from penstock_core.limits import ARCHIVE_PARTITION_VALUES_MAX
from penstock_spark.archive.archive_files import ArchivedFile, plan_typer
from penstock_spark.archive.day_files import DayFiles, data_path
from penstock_spark.archive.registered_schemas import Registries
from penstock_spark.archive.typed_columns import FILE_SCHEMA, Typing
from penstock_spark.archive.typing_values import in_parts
from penstock_spark.result_store import ResultStore

_ROWS = 8_192  # of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """The files of a table's snapshot, by their paths in the store, and how to type their values."""

    table: str
    snapshot_id: int
    paths: tuple[str, ...]
    typing: Typing

    @property
    def rebuild_id(self) -> str:
        """The same for each run that would write the same files."""
        typing = self.typing
        told = [self.snapshot_id, typing.kind, typing.schema, typing.columns, *typing.partition_by]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltFile:
    """The files that take the place of one file, and how many of their values did not fit."""

    files: tuple[ArchivedFile, ...]
    unfit: int


RebuildRunner = Callable[[Rebuild], Sequence[RebuiltFile]]  # writes all files of a rebuild


def rebuild_file(lake: ResultStore, rebuild: Rebuild, index: int, registries: Registries | None = None) -> RebuiltFile:
    """Write one file of the snapshot anew. Runs on executors, as often as Spark repeats it.

    It reads the file once, and needs local disk for it and the memory that `DayFiles` bounds.
    """
    filesystem, root = lake.filesystem()
    typer = plan_typer(rebuild.typing, lake, rebuild.table, registries)
    with TemporaryDirectory(prefix="penstock-rebuild-") as folder:
        days = DayFiles(Path(folder), rebuild.typing, values_max=ARCHIVE_PARTITION_VALUES_MAX)
        with filesystem.open_input_file(root + rebuild.paths[index]) as opened:
            rows = pq.ParquetFile(opened).iter_batches(batch_size=_ROWS, columns=FILE_SCHEMA.names)
            for batch in in_parts(rows):
                days.add(typer.add(batch))
        files = [(_path(rebuild, index, each.day), each.records, each.path) for each in days.close()]
        for path, _, local in files:
            lake.put_new(path, local)
    sizes = [(path, records, lake.size(path)) for path, records, _ in files]
    return RebuiltFile(
        files=tuple(ArchivedFile(path=path, records=records, file_bytes=size or 0) for path, records, size in sizes),
        unfit=typer.unfit,
    )


def _path(rebuild: Rebuild, index: int, day: str) -> str:
    return data_path(rebuild.table, day, f"rebuild-{rebuild.rebuild_id}-{index:06}")
