"""The set-up of the tests of archiving: a topic that is archived in one process, and the rows that its table must
have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from penstock_core.errors import PenstockError
from penstock_core.records.codec import Headers, NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.archive.archive_files import ArchivedGroup, archive_group, try_partitions
from penstock_spark.archive.archive_plan import Group, Plan
from penstock_spark.archive.archive_table import ArchiveTable, ParquetTable, TableKind, claim_table
from penstock_spark.archive.archiving import ArchiveResult, Preparation, Sizes, archive_topic, rebuild_table
from penstock_spark.archive.iceberg_table import IcebergTable, open_catalog
from penstock_spark.archive.rebuilding import Rebuild, RebuiltFile, rebuild_file
from penstock_spark.archive.registered_schemas import Registries
from penstock_spark.archive.typed_columns import Typing
from penstock_spark.result_store import FolderResultStore, ResultStore
from tests.glue_jobs.storages import SOME_STORAGE
from tests.support.service import Killed, entry, new_topic, patient_instance

DAY_MS = 24 * 3_600_000
START_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
SMALL = Sizes(group_bytes=400, commit_bytes=1_500)

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Row = tuple[int, int, bytes | None, bytes | None, int, Any]


@dataclass(kw_only=True)
class ArchivedTopic:
    """A topic of two partitions, a model of its records, and its table."""

    folder: Path
    kind: TableKind
    instance: Instance = field(default_factory=patient_instance)
    model: list[Row] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    registries: Registries | None = None

    def __post_init__(self) -> None:
        self.topic = new_topic(self.instance, "Web.orders", partitions=2)
        self.lake: Any = FolderResultStore(self.folder / "lake")
        self.open_catalog: Callable[[], tuple[Any, str]] = lambda: open_catalog(
            f"sqlite:///{self.folder}/catalog.db", SOME_STORAGE
        )

    def append(self, partition: int, count: int, day: int = 0) -> None:
        """Append a batch to a partition and to the model."""
        number = len(self.model)
        records = [
            NewRecord(
                START_MS + day * DAY_MS + each,
                None if each % 3 == 0 else b"key%d" % each,
                None if each % 5 == 4 else b"value %d" % (number + each),
                [("name", b"1"), ("none", None), ("traceparent", TRACEPARENT)] if each % 2 else (),
            )
            for each in range(count)
        ]
        batch = encode(records, Compression.ZSTD if day % 2 else Compression.NONE)
        [result] = produce(self.instance, [entry(self.topic, partition, batch)], Acks.QUORUM)
        assert not isinstance(result, PenstockError)
        self.model += [
            (partition, result.base_offset + each, record.key, record.value, record.timestamp_ms, record.headers)
            for each, record in enumerate(records)
        ]

    def append_values(self, *values: bytes | None, partition: int = 0, headers: Headers = ()) -> None:
        """Append a batch of values with equal headers; the model does not know it."""
        records = [NewRecord(START_MS + each, None, value, headers) for each, value in enumerate(values)]
        [result] = produce(
            self.instance, [entry(self.topic, partition, encode(records, Compression.NONE))], Acks.QUORUM
        )
        assert not isinstance(result, PenstockError)

    def rebuild(
        self,
        schema: tuple[str, str],
        lake: Any = None,
        catalog: Any = None,
        partition_by: Sequence[str] | None = None,
    ) -> None:
        """Type the table anew, in this process."""
        table = self.table(lake, catalog)
        assert isinstance(table, IcebergTable)
        store = self.lake if lake is None else lake

        def run(plan: Rebuild) -> list[RebuiltFile]:
            return [rebuild_file(store, plan, index, self.registries) for index in range(len(plan.paths))]

        rebuild_table(table, schema, run, self.log_event, partition_by)

    def log_event(self, event: str, **facts: Any) -> None:
        """Add an event to `events`."""
        self.events.append({"event": event, **facts})

    def table_rows(self) -> list[dict[str, Any]]:
        """All columns of the table, as pyiceberg reads them, in the order of partition and offset."""
        found = self.catalog().load_table(("penstock", "web_orders")).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def table_files(self) -> list[str]:
        """The data files of the table's current snapshot."""
        tasks = self.catalog().load_table(("penstock", "web_orders")).scan().plan_files()
        return [each.file.file_path for each in tasks]

    def fill(self) -> None:
        """36 appends: two pages of partition 0. Most groups hold one record set of another day."""
        for number in range(36):
            self.append(0 if number % 4 else 1, 1 + number % 3, day=number % 3 if number % 5 == 0 else number // 12)

    def table(self, lake: Any = None, catalog: Any = None) -> ArchiveTable:
        """The topic's table, claimed if it is new."""
        lake = self.lake if lake is None else lake
        topic = self.instance.stores.topics.get(self.instance.topic_cache.read_through(self.topic).name)
        assert topic is not None
        name = claim_table(lake, topic, self.kind)
        if self.kind is TableKind.PARQUET:
            return ParquetTable(lake, name)
        catalog = self.catalog() if catalog is None else catalog
        return IcebergTable(catalog, self.namespace, lake, name)

    def catalog(self, **hooks: Callable[..., Any]) -> Any:
        """The catalog. The methods that you name go through a hook first, also when the catalog's tables call them."""
        catalog, self.namespace = self.open_catalog()
        for name, hook in hooks.items():
            setattr(catalog, name, partial(hook, getattr(catalog, name)))
        return catalog

    def archive(
        self,
        sizes: Sizes = SMALL,
        lake: Any = None,
        catalog: Any = None,
        before_group: Callable[[Group], object] = id,
        schema: tuple[str, str] | None = None,
        before_typing: Callable[[], object] = list,
        partition_by: Sequence[str] | None = None,
    ) -> ArchiveResult:
        """Run the archive once, in this process. The events go to `events`. `schema` types the values."""
        store: ResultStore = self.lake if lake is None else lake

        def run_groups(table: str, plan: Plan) -> Sequence[ArchivedGroup]:
            found = []
            for group in plan.groups:
                before_group(group)
                found.append(archive_group(self.instance, store, table, plan, group, registries=self.registries))
            return found

        topic = self.instance.topic_cache.read_through(self.topic)
        table = self.table(store, catalog)

        def ready() -> Typing | None:
            before_typing()
            if schema is None:
                return None
            assert isinstance(table, IcebergTable)
            return table.typed(*schema, partition_by)

        def check(name: str, plan: Plan) -> None:
            if partition_by:
                try_partitions(self.instance, store, name, plan, self.registries)

        preparation = Preparation(ready=ready, check=check)
        return archive_topic(self.instance, store, topic, table, run_groups, sizes, self.log_event, preparation)

    def rows(self) -> list[Row]:
        """The table's rows, as its engine reads them."""
        if self.kind is TableKind.PARQUET:
            return self.files()
        found = self.catalog().load_table(("penstock", "web_orders")).scan().to_arrow()
        return sorted(map(row_of, found.to_pylist()), key=place_of)

    def files(self) -> list[Row]:
        """The table's rows, as an engine that knows nothing of commits reads them."""
        data = self.folder / "lake" / "web_orders" / "data"
        if not data.exists():
            return []
        found = ds.dataset(data, format="parquet", partitioning="hive").to_table()
        assert {str(each.as_py()) for each in found["day"].unique()} == {
            str(each.as_py())[:10] for each in found["timestamp"].unique()
        }
        return sorted(map(row_of, found.to_pylist()), key=place_of)

    def expected(self, since: int = 0) -> list[Row]:
        """The rows that the model has, from offset `since` of partition 0 on."""
        return sorted((row for row in self.model if row[0] or row[1] >= since), key=place_of)


def row_of(found: dict[str, Any]) -> Row:
    assert found["topic"] == "Web.orders"
    headers = tuple((each["key"], each["value"]) for each in found["headers"] or ())
    timestamp_ms = round(found["timestamp"].timestamp() * 1_000)
    return found["partition"], found["offset"], found["key"], found["value"], timestamp_ms, headers


def place_of(row: Row) -> tuple[int, int]:
    return row[0], row[1]


def same(found: list[Row], expected: list[Row]) -> bool:
    return found == [(*row[:5], tuple(row[5])) for row in expected]


class DyingWriter:
    """Kills the writer: after its first write has taken effect, or before its next write."""

    def __init__(self, *, before_next: bool) -> None:
        self._before_next = before_next
        self._is_due = False

    def write(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._is_due:
            raise Killed
        result = original(*arguments, **named)
        self._is_due = result is not False
        if self._is_due and not self._before_next:
            raise Killed
        return result
