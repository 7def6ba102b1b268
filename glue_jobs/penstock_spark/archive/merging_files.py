"""`archive --merge-files`: joins the small files of a table's days.

    snapshot S: small files of a day ─ those with equal columns, joined ─ one commit: joined files for them

Files are joined as they are, with their columns' ids, so no row changes. Files from before and behind a change of the
schema stay apart. A run takes `MERGED_FILES_MAX` files at most, of the oldest days first; the next run goes on. The
joined files have names of a digest of what was read, and are put only if they do not exist. The commit holds only on
top of the snapshot that was read, so a run that was killed anywhere is repeated.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from penstock_core.limits import MIB
from penstock_spark.archive.archive_files import ArchivedFile
from penstock_spark.archive.day_files import COMPRESSION, ROW_GROUP_BYTES
from penstock_spark.result_store import ResultStore

SMALL_FILE_BYTES = 16 * MIB
MERGED_FILE_BYTES = 128 * MIB  # of what is read into one file
MERGED_FILES_MAX = 2_000  # of one run
_FEW = 4  # small files of a day that are not worth a rewriting


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFile:
    """A data file, by its path in the store. `partition` names its day and its values of chosen columns."""

    path: str
    partition: str
    file_bytes: int
    records: int

    @property
    def folder(self) -> str:
        """The folder of its day, such as `day=2026-11-21`."""
        return self.path.rpartition("/")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The groups of files that a run joins, in a table's snapshot."""

    table: str
    snapshot_id: int
    groups: tuple[tuple[SmallFile, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFiles:
    """The files that take the place of others."""

    files: tuple[ArchivedFile, ...]
    replaced: tuple[str, ...]


MergeRunner = Callable[[Merge], Sequence[MergedFiles]]  # joins all groups


def plan_groups(files: Iterable[SmallFile]) -> tuple[tuple[SmallFile, ...], ...]:
    """Groups of small files of one partition each, of about `MERGED_FILE_BYTES`: those of the oldest days first."""
    days: defaultdict[tuple[str, str], list[SmallFile]] = defaultdict(list)
    for each in files:
        if each.file_bytes < SMALL_FILE_BYTES:
            days[each.folder, each.partition].append(each)
    groups: list[tuple[SmallFile, ...]] = []
    taken = 0
    for _, small in sorted(days.items()):
        if len(small) < _FEW:
            continue
        waiting: list[SmallFile] = []
        for each in sorted(small, key=lambda file: file.path):
            if taken == MERGED_FILES_MAX:
                break
            waiting.append(each)
            taken += 1
            if sum(file.file_bytes for file in waiting) >= MERGED_FILE_BYTES:
                groups.append(tuple(waiting))
                waiting = []
        if len(waiting) > 1:
            groups.append(tuple(waiting))
    return tuple(groups)


def merge_group(lake: ResultStore, merge: Merge, index: int) -> MergedFiles:
    """Join the files of a group that have equal columns. Runs on executors, as often as Spark repeats it.

    Uses local disk for the joined files, and memory for a row group.
    """
    group = merge.groups[index]
    filesystem, root = lake.filesystem()
    alike: list[tuple[pa.Schema, list[SmallFile]]] = []
    for each in group:
        schema = pq.read_schema(root + each.path, filesystem=filesystem)
        found = next((files for known, files in alike if known.equals(schema, check_metadata=True)), None)
        if found is None:
            alike.append((schema, [each]))
        else:
            found.append(each)
    joined = [(schema, files) for schema, files in alike if len(files) > 1]
    done: list[ArchivedFile] = []
    for schema, files in joined:
        told = json.dumps([merge.snapshot_id, [each.path for each in files]])
        name = hashlib.sha256(told.encode()).hexdigest()[:16]
        path = f"{merge.table}/data/{files[0].folder}/merged-{name}.parquet"
        size = lake.size(path)
        if size is None:
            with TemporaryDirectory(prefix="penstock-merge-") as folder:
                local = Path(folder) / "joined.parquet"
                _join(lake, files, schema, local)
                lake.put_new(path, local)
            size = lake.size(path)
        done.append(ArchivedFile(path=path, records=sum(each.records for each in files), file_bytes=size or 0))
    replaced = tuple(each.path for _, files in joined for each in files)
    return MergedFiles(files=tuple(done), replaced=replaced)


def _join(lake: ResultStore, files: Sequence[SmallFile], schema: pa.Schema, local: Path) -> None:
    filesystem, root = lake.filesystem()
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(local, schema, compression=COMPRESSION) as writer:

        def write() -> None:
            if waiting:
                table = pa.concat_tables(waiting)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                waiting.clear()

        for each in files:
            with filesystem.open_input_file(root + each.path) as opened:
                parquet = pq.ParquetFile(opened)
                for number in range(parquet.num_row_groups):
                    waiting.append(parquet.read_row_group(number))
                    if sum(table.nbytes for table in waiting) >= ROW_GROUP_BYTES:
                        write()
        write()
