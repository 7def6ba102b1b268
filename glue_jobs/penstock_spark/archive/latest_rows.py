"""`archive --latest`: a table that has the latest record of each key, as compaction leaves a topic.

    table of the topic at snapshot S ─ files since the last run ┐
    table of the latest rows         ─ its files               ┴ each partition: latest of each key ─ one commit: new
                                                                 files for all old ones, and S

Keys count within a partition, as in compaction, and the highest offset wins. A key whose latest record is a tombstone
has no row, and a record without a key has none. Only files that archive has appended since S count alone: an engine may
have rewritten others, and an old row in a new file must not outlive a tombstone that was merged before. So after any
other change, all files of the topic's table are read.

A run has an id: a digest of what it reads. Its files have names of that id, and are put only if they do not exist. The
commit holds only on top of the snapshot that was read. So a run that was killed anywhere is repeated, and two runs at
once make one table.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.archive.archive_files import ArchivedFile, plan_typer
from penstock_spark.archive.day_files import DayFiles
from penstock_spark.archive.registered_schemas import Registries
from penstock_spark.archive.typed_columns import FILE_SCHEMA, Typing
from penstock_spark.archive.typing_values import in_parts
from penstock_spark.result_store import ResultStore

LATEST_KEYS_MAX = 10_000_000  # a task holds those of a partition in memory, about 150 bytes each
SUFFIX = "_latest"
_ROWS = 8_192  # of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRows:
    """The files that a run merges, by their paths in the store: into the table's snapshot, for one of the topic's.

    `partitions` are all that the topic has had. `typing` types the values; None for a table without types.
    """

    table: str
    of_snapshot: int
    snapshot_id: int | None
    paths: tuple[str, ...]
    partitions: int
    typing: Typing | None

    @property
    def run_id(self) -> str:
        """The same for each run that would write the same files."""
        typing = None if self.typing is None else [self.typing.kind, self.typing.schema, self.typing.columns]
        told = [self.of_snapshot, self.snapshot_id, self.paths, typing]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


LatestRunner = Callable[[LatestRows], Sequence[Sequence[ArchivedFile]]]  # writes the files of all partitions


def write_latest(
    lake: ResultStore, work: LatestRows, partition: int, registries: Registries | None = None
) -> tuple[ArchivedFile, ...]:
    """Write the latest rows of one partition, by day. Runs on executors, as often as Spark repeats it.

    It reads the partition's rows twice. Raises INVALID_CONFIG for more than `LATEST_KEYS_MAX` keys.
    """
    newest: dict[bytes, int] = {}
    for batch in _rows(lake, work, partition, ["key", "offset"]):
        for key, offset in zip(batch.column("key").to_pylist(), batch.column("offset").to_pylist(), strict=True):
            if key is not None and offset > newest.get(key, -1):
                newest[key] = offset
        if len(newest) > LATEST_KEYS_MAX:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"partition {partition} of table {work.table} has more than {LATEST_KEYS_MAX:,} keys: give the topic "
                "more partitions, or leave --latest out",
            )
    if not newest:
        return ()
    wanted = np.sort(np.fromiter(newest.values(), np.int64, len(newest)))
    typer = None if work.typing is None else plan_typer(work.typing, lake, work.table, registries)
    with TemporaryDirectory(prefix="penstock-latest-") as folder:
        days = DayFiles(Path(folder), work.typing)
        for batch in _rows(lake, work, partition, FILE_SCHEMA.names):
            offsets = batch.column("offset").to_numpy()
            is_latest = wanted.take(wanted.searchsorted(offsets), mode="clip") == offsets
            is_row = pc.and_(pa.array(is_latest), pc.is_valid(batch.column("value")))
            found = batch.filter(pc.and_(is_row, pc.is_valid(batch.column("key"))))
            if found.num_rows:
                for part in in_parts([found]):
                    days.add(part if typer is None else typer.add(part))
        files = [(_path(work, partition, each.day), each.records, each.path) for each in days.close()]
        for path, _, local in files:
            lake.put_new(path, local)
    sizes = [(path, records, lake.size(path)) for path, records, _ in files]
    return tuple(ArchivedFile(path=path, records=records, file_bytes=size or 0) for path, records, size in sizes)


def _rows(lake: ResultStore, work: LatestRows, partition: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The partition's rows. Row groups of other partitions are passed over by their statistics."""
    filesystem, root = lake.filesystem()
    for path in work.paths:
        found = ds.dataset(root + path, filesystem=filesystem, format="parquet", schema=pa.schema(_plain_fields()))
        is_own = pc.field("partition") == partition
        yield from found.to_batches(columns=columns, filter=is_own, batch_size=_ROWS, batch_readahead=1)


def _plain_fields() -> list[pa.Field]:
    return [each.remove_metadata() for each in FILE_SCHEMA]


def _path(work: LatestRows, partition: int, day: str) -> str:
    return f"{work.table}/data/day={day}/latest-{work.run_id}-{partition:05}.parquet"
