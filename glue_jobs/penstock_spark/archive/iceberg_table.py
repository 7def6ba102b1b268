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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.archive.archive_files import ArchivedFile
from penstock_spark.archive.archive_plan import CommittedFiles, Plan, offsets_of_json
from penstock_spark.result_store import ResultStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

COMMIT, NEXT_OFFSETS = "penstock.commit", "penstock.next-offsets"
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

        from penstock_spark.archive.archive_schema import FILE_SCHEMA, TIMESTAMP_ID

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
        carried = {COMMIT: str(plan.number), NEXT_OFFSETS: json.dumps(plan.next_offsets, separators=(",", ":"))}
        with table.transaction() as transaction:
            transaction.set_properties(carried)
            with transaction.update_snapshot(snapshot_properties=carried).merge_append() as snapshot:
                for each in files:
                    snapshot.append_data_file(_data_file(table, self._lake.uri(each.path)))


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


def _parse(found: Mapping[str, str]) -> CommittedFiles:
    return CommittedFiles(number=int(found[COMMIT]), next_offsets=offsets_of_json(json.loads(found[NEXT_OFFSETS])))


def _data_file(table: "Table", uri: str) -> "DataFile":
    """The manifest's entry for the file, from the statistics in its footer."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    found = table.io.new_input(uri)
    with found.open() as stream:
        footer = pq.read_metadata(stream)
    schema = table.schema()
    statistics: Any = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(table.spec(), schema),
        file_size_in_bytes=len(found),
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
