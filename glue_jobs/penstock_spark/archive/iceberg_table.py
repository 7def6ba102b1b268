"""A topic's table in Iceberg: a commit is a snapshot, and the snapshot carries the next offsets.

The table's progress is the newest snapshot that carries next offsets, from the current one back over its parents. Other
engines may add snapshots in between, for example to rewrite small files; they do no harm. A table that was rolled back
is archived again from its present state. If that way back meets an expired snapshot, the table's properties tell the
last commit: the same update writes them.

A commit must apply only on top of the snapshot that this module read. By itself pyiceberg (0.12) would retry on top of
any other snapshot, and so add the files of one plan twice. So the table turns off its retries, and this module reads
the table again instead.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.archive.archive_files import ArchivedFile
from penstock_spark.archive.archive_plan import CommittedFiles, Plan, offsets_of_json
from penstock_spark.archive.archive_table import find_plan
from penstock_spark.archive.latest_rows import LatestRows
from penstock_spark.archive.merging_files import Merge, MergedFiles, SmallFile, plan_groups
from penstock_spark.archive.orphan_files import KeptFiles, last_two
from penstock_spark.archive.rebuilding import Rebuild
from penstock_spark.archive.typed_columns import (
    FILE_SCHEMA,
    TIMESTAMP_ID,
    Typing,
    ValueColumns,
    may_partition,
    parse_partition,
    table_fields,
    value_columns,
)
from penstock_spark.result_store import ResultStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

COMMIT, NEXT_OFFSETS = "penstock.commit", "penstock.next-offsets"
LATEST_OF = "penstock.latest-of"  # the snapshot of the topic's table whose latest rows a snapshot has
NUMBERS = "penstock.field-numbers"  # of Protobuf, by column: a field with a new name is found by its number
NAMESPACE = "penstock"
PARTITION_FIELD = "day"

_ATTEMPTS_MAX = 10  # a table has few other writers, so a commit that fails ten times needs an operator
_ONE_TRY = {"commit.retry.num-retries": "0"}
_PROPERTIES = {
    **_ONE_TRY,
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}
_PARTITION_ID = 1000
_FIRST_SEQUENCE_NUMBER = 1


def open_catalog(spec: str, storage: Storage) -> "tuple[Catalog, str]":
    """The catalog and its namespace, which is created if it is missing.

    `spec` is `glue:<database>`, or a database's URL such as `sqlite:///catalog.db`. Raises INVALID_CONFIG.
    """
    kind, _, rest = spec.partition(":")
    if not rest:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"catalog {spec!r}: give glue:<database>, a database's URL such as sqlite:///catalog.db, or none for "
            "Parquet without a catalog",
        )
    properties = io_properties(storage)
    if kind == "glue":
        from pyiceberg.catalog.glue import GlueCatalog

        return _with_namespace(GlueCatalog("glue", **properties), rest)
    return _with_namespace(_sql_catalog(spec, properties), NAMESPACE)


class IcebergTable:
    """ArchiveTable in a catalog. The first commit creates the table."""

    def __init__(self, catalog: "Catalog", namespace: str, lake: ResultStore, name: str) -> None:
        self._catalog = catalog
        self._identifier = (namespace, name)
        self._lake = lake
        self._name = name

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    def committed(self) -> CommittedFiles:
        """The present progress of the table."""
        table = self._load()
        return CommittedFiles() if table is None else _committed(table)

    def pin(self, snapshot_id: int | None) -> tuple[str, int]:
        """The location of the table's metadata, and that snapshot, or the current one if `snapshot_id` is None.

        Raises UNKNOWN_TOPIC if the table or the snapshot does not exist.
        """
        table = self._load()
        missing = "no snapshot" if snapshot_id is None else f"snapshot {snapshot_id} no more"
        if table is not None:
            snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
            if snapshot is not None:
                return table.metadata_location, snapshot.snapshot_id
        raise PenstockError(
            ErrorCode.UNKNOWN_TOPIC,
            f"table {'.'.join(self._identifier)} of the catalog has {missing}: archive the topic first, or begin the "
            "replay again under another --replay-id, and select only the records that its topic lacks",
        )

    def commit(self, plan: Plan, files: Sequence[ArchivedFile]) -> None:
        """Add the plan's files: read each footer, write a manifest and its list, and update the catalog once.

        Raises CONCURRENT_UPDATE if other writers win every attempt, and the catalog's own errors.
        """
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        error: Exception | None = None
        for _ in range(_ATTEMPTS_MAX):
            table = self._load() or self._create()
            if _committed(table).number >= plan.number:
                return
            try:
                self._append(table, plan, files)
            except (CommitFailedException, CommitStateUnknownException) as raised:
                error = raised
            else:
                return
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"commit {plan.number} of table {'.'.join(self._identifier)} failed {_ATTEMPTS_MAX} times, because other "
            f"writers change the table: {error}; its files are in place, run the job again",
        )

    def typed(self, kind: str, schema: str, partition_by: Sequence[str] | None = None) -> Typing:
        """Give the table the columns of a schema, and return how to type values for it.

        New files have one value of each column of `partition_by`; None: as the table has it now.

        It adds columns, renames those that the schema has as aliases or by number, and widens int to long, float to
        double, and the precision of decimals. It removes none. One commit, if something changes. Raises INVALID_CONFIG
        for a column that has another type, and CONCURRENT_UPDATE.
        """
        columns = value_columns(kind, schema)
        table = self._load() or self._create()
        with self._change(), table.transaction() as transaction:
            _evolve(transaction, columns)
        names = _partitions_of(table) if partition_by is None else partition_by
        return _typing(kind, schema, table.schema(), names, is_given=partition_by is not None)

    def plan_rebuild(self, kind: str, schema: str, partition_by: Sequence[str] | None = None) -> Rebuild | None:
        """The rebuild of all files of the current snapshot; None if there is none. It changes nothing.

        Without `partition_by`, the partitions stay of which the schema has a column.

        Raises INVALID_CONFIG for a table from which an engine has deleted rows in files of their own.
        """
        columns = value_columns(kind, schema)
        table = self._load()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None:
            return None
        paths = self._paths(table)
        transaction = table.transaction()  # it is never committed: it tells the ids that the columns will have
        with self._change():
            _evolve(transaction, columns, is_anew=True)
        names, is_given = (_partitions_of(table), False) if partition_by is None else (partition_by, True)
        return Rebuild(
            table=self._name,
            snapshot_id=snapshot.snapshot_id,
            paths=paths,
            typing=_typing(kind, schema, transaction.table_metadata.schema(), names, is_given=is_given),
        )

    def commit_rebuild(self, rebuild: Rebuild, files: Sequence[ArchivedFile]) -> None:
        """Put the new columns, and the new files in the place of the old ones, by one update of the catalog.

        Raises CONCURRENT_UPDATE if the table has changed since the rebuild was planned, or if an archive run has a
        plan, whose files would have the columns of before; then nothing happens.
        """
        table = self._load()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None or snapshot.snapshot_id != rebuild.snapshot_id:
            raise self._changed("it has another snapshot")
        committed = _committed(table)
        if find_plan(self._lake, self._name, committed.number + 1) is not None:
            raise self._changed(f"an archive run has planned commit {committed.number + 1}")
        carried = _carried(committed.number, committed.next_offsets) if committed.number else {}
        typing = rebuild.typing
        with self._change(), table.transaction() as transaction:
            transaction.set_properties({**_ONE_TRY, **carried})
            with transaction.update_snapshot(
                snapshot_properties=carried
            ).overwrite() as gone:  # while it has its columns
                for each in table.scan().plan_files():
                    gone.delete_data_file(each.file)
            _evolve(transaction, value_columns(typing.kind, typing.schema), is_anew=True)
            schema = transaction.table_metadata.schema()
            if _typing(typing.kind, typing.schema, schema, typing.partition_by, is_given=True) != typing:
                raise self._changed("it has other columns")
            _lay_out(transaction, typing)
            with transaction.update_snapshot(snapshot_properties=carried).merge_append() as update:
                for file in files:
                    update.append_data_file(_data_file(table, transaction.table_metadata, self._lake.uri(file.path)))

    def plan_latest(self, of: "IcebergTable", partitions: int, typing: Typing | None) -> LatestRows | None:
        """The run that makes this the table of the latest rows of another; None if there is nothing new.

        Raises as `plan_rebuild`.
        """
        base = of._load()
        current = None if base is None else base.current_snapshot()
        if base is None or current is None:
            return None
        own = self._load()
        snapshot = None if own is None else own.current_snapshot()
        told = None if snapshot is None or snapshot.summary is None else snapshot.summary.get(LATEST_OF)
        if told == str(current.snapshot_id):
            return None
        paths = of._paths(base)
        if own is not None and told is not None and _only_appended(base, int(told)):
            merged = {*of._paths(base, int(told))}
            paths = (*(each for each in paths if each not in merged), *self._paths(own))
        return LatestRows(
            table=self._name,
            of_snapshot=current.snapshot_id,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            paths=paths,
            partitions=partitions,
            typing=typing,
        )

    def commit_latest(self, work: LatestRows, files: Sequence[ArchivedFile]) -> None:
        """Put the files in the place of all that the table has, by one update of the catalog.

        Raises CONCURRENT_UPDATE if the table has changed since the run was planned; then nothing happens.
        """
        table = self._load() or self._create()
        snapshot = table.current_snapshot()
        if (None if snapshot is None else snapshot.snapshot_id) != work.snapshot_id:
            raise self._changed("it has another snapshot")
        with self._change(), table.transaction() as transaction:
            transaction.set_properties(_ONE_TRY)
            with transaction.update_snapshot(snapshot_properties={LATEST_OF: str(work.of_snapshot)}).overwrite() as put:
                for each in table.scan().plan_files():
                    put.delete_data_file(each.file)
                for file in files:
                    put.append_data_file(_data_file(table, transaction.table_metadata, self._lake.uri(file.path)))

    def plan_merge(self) -> Merge | None:
        """The small files of the current snapshot that are worth joining; None if there are none. It changes nothing.

        Raises as `plan_rebuild`.
        """
        table = self._load()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None:
            return None
        self._paths(table)
        groups = plan_groups(
            SmallFile(
                path=self._path(each.file),
                partition=str(each.file.partition),
                file_bytes=each.file.file_size_in_bytes,
                records=each.file.record_count,
            )
            for each in table.scan().plan_files()
            if each.file.spec_id == table.metadata.default_spec_id  # new files are put as the newest partitions are
        )
        return Merge(table=self._name, snapshot_id=snapshot.snapshot_id, groups=groups) if groups else None

    def commit_merge(self, merge: Merge, merged: Sequence[MergedFiles]) -> None:
        """Put the joined files in the place of those that they hold, by one update of the catalog.

        Raises CONCURRENT_UPDATE if the table has changed since the run was planned; then nothing happens.
        """
        table = self._load()
        snapshot = None if table is None else table.current_snapshot()
        if table is None or snapshot is None or snapshot.snapshot_id != merge.snapshot_id:
            raise self._changed("it has another snapshot")
        replaced = {path for each in merged for path in each.replaced}
        gone = [each.file for each in table.scan().plan_files() if self._path(each.file) in replaced]
        uris = [self._lake.uri(file.path) for each in merged for file in each.files]
        made = [_data_file(table, table.metadata, uri) for uri in uris]
        rows, joined = (sum(file.record_count for file in files) for files in (gone, made))
        if rows != joined:
            raise PenstockError(
                ErrorCode.INTERNAL, f"joined files of table {self._name} have {joined} rows in the place of {rows}"
            )
        committed = _committed(table)
        carried = _carried(committed.number, committed.next_offsets) if committed.number else {}
        with self._change(), table.transaction() as transaction:
            transaction.set_properties({**_ONE_TRY, **carried})
            with transaction.update_snapshot(snapshot_properties=carried).overwrite() as update:
                for file in gone:
                    update.delete_data_file(file)
                for file in made:
                    update.append_data_file(file)

    def kept_files(self) -> KeptFiles | None:
        """The files of all snapshots; None for a table without one. Reads each manifest and each metadata file once.

        Raises INVALID_CONFIG if another table lies at the same place: it may have files of this one.
        """
        table = self._load()
        current = None if table is None else table.current_snapshot()
        if table is None or current is None:
            return None
        folder = f"{self._name}/metadata/"
        for name in self._lake.names(folder):
            if name.endswith(".metadata.json"):
                self._check_own(table, self._lake.uri(folder + name))
        manifests = {
            each.manifest_path: each for snapshot in table.snapshots() for each in snapshot.manifests(table.io)
        }
        entries = (each for manifest in manifests.values() for each in manifest.fetch_manifest_entry(table.io))
        return KeptFiles(
            table=self._name,
            names=frozenset(last_two(each.data_file.file_path) for each in entries),
            committed=_committed(table).number,
            snapshot_ms=current.timestamp_ms,
        )

    def _check_own(self, table: "Table", uri: str) -> None:
        from pyiceberg.serializers import FromInputFile

        try:
            found = FromInputFile.table_metadata(table.io.new_input(uri)).table_uuid
        except FileNotFoundError:  # a commit has just removed it
            return
        if found != table.metadata.table_uuid:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"{uri} is of another table than {'.'.join(self._identifier)} of this catalog, and the two may have "
                "files in common, so none is removed: if no catalog has that table any more, remove its metadata",
            )

    def _paths(self, table: "Table", snapshot_id: int | None = None) -> tuple[str, ...]:
        """The files of a snapshot, by their paths in the store. Raises INVALID_CONFIG for files of deleted rows."""
        tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
        if any(each.delete_files for each in tasks):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"table {self._name} has files of deleted rows: rewrite its data files by your engine first",
            )
        return tuple(sorted(self._path(each.file) for each in tasks))

    def _path(self, file: "DataFile") -> str:
        return str(file.file_path).removeprefix(self._lake.uri("")).lstrip("/")

    @contextmanager
    def _change(self) -> Iterator[None]:
        from pyiceberg.exceptions import CommitFailedException, ValidationError

        try:
            yield
        except CommitFailedException as error:
            raise self._changed(str(error)) from error
        except (ValidationError, ValueError, TypeError) as error:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"the schema does not fit the columns of table {self._name}: {error}; give the field another name, or "
                "type the history anew by --rebuild",
            ) from error

    def _changed(self, why: str) -> PenstockError:
        return PenstockError(
            ErrorCode.CONCURRENT_UPDATE, f"table {self._name} was changed by another writer ({why}): run the job again"
        )

    def _load(self) -> "Table | None":
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None
        location = self._lake.uri(self._name)
        if table.location().rstrip("/") != location:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"table {'.'.join(self._identifier)} of the catalog lies at {table.location()}, not at {location}: "
                "give its --output, or another catalog",
            )
        return table

    def _create(self) -> "Table":
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.io.pyarrow import pyarrow_to_schema
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform

        day = PartitionField(
            source_id=TIMESTAMP_ID, field_id=_PARTITION_ID, transform=DayTransform(), name=PARTITION_FIELD
        )
        try:
            return self._catalog.create_table(
                self._identifier,
                pyarrow_to_schema(FILE_SCHEMA),
                location=self._lake.uri(self._name),
                partition_spec=PartitionSpec(day),
                properties=_PROPERTIES,
            )
        except TableAlreadyExistsError:  # another run created it at the same time
            return self._catalog.load_table(self._identifier)

    def _append(self, table: "Table", plan: Plan, files: Sequence[ArchivedFile]) -> None:
        if any(table.properties.get(name) != value for name, value in _ONE_TRY.items()):
            with table.transaction() as transaction:
                transaction.set_properties(_ONE_TRY)
        carried = _carried(plan.number, plan.next_offsets)
        with table.transaction() as transaction:
            transaction.set_properties(carried)
            _lay_out(transaction, plan.typing)
            with transaction.update_snapshot(snapshot_properties=carried).merge_append() as snapshot:
                for each in files:
                    snapshot.append_data_file(_data_file(table, transaction.table_metadata, self._lake.uri(each.path)))


def io_properties(storage: Storage) -> dict[str, str]:
    """The settings with which pyiceberg reaches the storage and the tables' files."""
    given: dict[str, str | None] = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "client.region": storage.region,
        "client.access-key-id": storage.access_key,
        "client.secret-access-key": storage.secret_key,
        "s3.endpoint": storage.endpoint_url,
        "glue.endpoint": storage.endpoint_url,
    }
    return {name: value for name, value in given.items() if value is not None}


def _sql_catalog(url: str, properties: Mapping[str, str]) -> "Catalog":
    try:
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"catalog {url!r}: {error}; install pyiceberg[sql-sqlite] or use glue:<database>"
        ) from error
    try:
        return SqlCatalog(NAMESPACE, uri=url, **properties)
    except SQLAlchemyError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"catalog {url!r} cannot be opened: {error}") from error


def _with_namespace(catalog: "Catalog", namespace: str) -> "tuple[Catalog, str]":
    from pyiceberg.exceptions import NamespaceAlreadyExistsError

    if not catalog.namespace_exists(namespace):
        with suppress(NamespaceAlreadyExistsError):  # another run created it at the same time
            catalog.create_namespace(namespace)
    return catalog, namespace


def _committed(table: "Table") -> CommittedFiles:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if COMMIT in found:
            return _parse(found)
        if snapshot.sequence_number == _FIRST_SEQUENCE_NUMBER:  # it has no parent
            return CommittedFiles()
        parent = snapshot.parent_snapshot_id  # an engine that expires the parent may keep its id here, or remove it
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    is_lost = table.current_snapshot() is not None and COMMIT in table.properties
    return _parse(table.properties) if is_lost else CommittedFiles()


def _only_appended(table: "Table", since: int) -> bool:
    """True if commits of archive alone lead from that snapshot to the current one: no older file was rewritten."""
    snapshot = table.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id != since:
        summary = snapshot.summary
        parent = snapshot.parent_snapshot_id
        if summary is None or summary.operation.value != "append" or COMMIT not in summary.additional_properties:
            return False
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return snapshot is not None


def _parse(found: Mapping[str, str]) -> CommittedFiles:
    return CommittedFiles(number=int(found[COMMIT]), next_offsets=offsets_of_json(json.loads(found[NEXT_OFFSETS])))


def _carried(number: int, next_offsets: Mapping[int, int]) -> dict[str, str]:
    return {COMMIT: str(number), NEXT_OFFSETS: json.dumps(next_offsets, separators=(",", ":"))}


def _evolve(transaction: "Transaction", columns: ValueColumns, *, is_anew: bool = False) -> None:
    """Give the table the columns; `is_anew`: in the place of all that it has besides those of records."""
    names = set(transaction.table_metadata.schema().column_names) - set(FILE_SCHEMA.names)
    top = {name for name in names if "." not in name}
    if is_anew and top:
        _lay_out(transaction, None)  # a partition may not lack its column
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in top:
                update.delete_column(name)
    properties = transaction.table_metadata.properties
    numbers: dict[str, int] = {} if is_anew else json.loads(properties.get(NUMBERS, "{}"))
    renames = {
        old: name
        for name, others in columns.aliases.items()
        for old in (*others, *(each for each, number in numbers.items() if number == columns.numbers.get(name)))
        if not is_anew and name not in top and old in top and old not in columns.sources
    }
    if renames:
        with transaction.update_schema() as update:
            for old, name in renames.items():
                update.rename_column(old, name)
    told = {name: number for name, number in numbers.items() if name not in renames} | dict(columns.numbers)
    if told != numbers:
        transaction.set_properties({NUMBERS: json.dumps(told, separators=(",", ":"))})
    with transaction.update_schema() as update:
        update.union_by_name(pa.schema(table_fields(columns)))


def _typing(kind: str, text: str, schema: "Schema", partition_by: Sequence[str], *, is_given: bool) -> Typing:
    """The typing of new files. Names that are not given drop out where the schema has no such column any more."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    columns = schema_to_pyarrow(schema)
    return Typing.of(kind, text, columns, [each for each in partition_by if is_given or may_partition(columns, each)])


def _partitions_of(table: "Table") -> list[str]:
    """The columns of which a file of the table has one value, by their present names, as an option names them."""
    found = [(transform, table.schema().find_column_name(each)) for transform, each in _chosen(table.metadata).values()]
    named = [(transform, name) for transform, name in found if name is not None]
    return [name if transform == "identity" else f"{transform}({name})" for transform, name in named]


def _chosen(metadata: "TableMetadata") -> dict[str, tuple[str, int]]:
    """The transforms and columns of the newest partitions without the records' day, by the partition field's name."""
    return {
        each.name: (str(each.transform), each.source_id)
        for each in metadata.spec().fields
        if each.source_id != TIMESTAMP_ID
    }


def _lay_out(transaction: "Transaction", typing: Typing | None) -> None:
    """Let the table's partitions be those that files of this typing have. Columns are known by id: names may change."""
    from pyiceberg.transforms import parse_transform

    wanted: list[tuple[str, int]] = []
    for each in () if typing is None else typing.partition_by:
        transform, column = parse_partition(each)
        assert typing is not None
        wanted.append((transform, int(typing.file_schema().field(column).metadata[b"PARQUET:field_id"])))
    current = _chosen(transaction.table_metadata)
    if set(wanted) != {*current.values()}:
        with transaction.update_spec() as update:
            for name, found in current.items():
                if found not in wanted:
                    update.remove_field(name)
            for transform, number in wanted:
                if (transform, number) not in current.values():
                    # A rebuild may make another column of that name, and older partitions keep theirs.
                    name = str(transaction.table_metadata.schema().find_column_name(number))
                    of_time = "" if transform == "identity" else f"_{transform}"
                    update.add_field(name, parse_transform(transform), f"{name}{of_time}_{number}")


def _data_file(table: "Table", metadata: "TableMetadata", uri: str) -> "DataFile":
    """The manifest's entry for the file, from the statistics in its footer."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    schema = metadata.schema()
    found = table.io.new_input(uri)
    with found.open() as stream:
        footer = pq.read_metadata(stream)
    statistics: Any = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(metadata.spec(), schema),
        file_size_in_bytes=len(found),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
