"""The table of the latest rows equals the latest record of each key, through kills, rebuilds and other engines."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.records.produce import produce
from penstock_spark.archive import latest_rows
from penstock_spark.archive.archive_table import TableKind, claim_table
from penstock_spark.archive.archiving import merge_latest
from penstock_spark.archive.iceberg_table import IcebergTable, _data_file
from penstock_spark.archive.latest_rows import SUFFIX, LatestRows, write_latest
from tests.glue_jobs.archived_topic import DAY_MS, START_MS, ArchivedTopic, DyingWriter
from tests.support.service import Intercepted, Killed, entry

SCHEMA = ("json", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
Model = dict[tuple[int, bytes], bytes]


class LatestTopic(ArchivedTopic):
    """A topic of keyed records, and what the table of its latest rows must have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expected_rows: Model = {}
        self.reads: list[int] = []

    def send(self, partition: int, *records: tuple[bytes | None, bytes | None], day: int = 0) -> None:
        made = [NewRecord(START_MS + day * DAY_MS, key, value) for key, value in records]
        [result] = produce(self.instance, [entry(self.topic, partition, encode(made, Compression.NONE))], Acks.QUORUM)
        assert not isinstance(result, PenstockError)
        for key, value in records:
            if key is not None and value is not None:
                self.expected_rows[partition, key] = value
            elif key is not None:
                self.expected_rows.pop((partition, key), None)

    def merge(self, lake: Any = None, catalog: Any = None, schema: tuple[str, str] | None = None) -> None:
        """What the job does behind the archive of the topic."""
        store = self.lake if lake is None else lake
        table = self.table(lake, catalog)
        topic = self.instance.topic_cache.read_through(self.topic)
        opened = self.catalog() if catalog is None else catalog
        latest = IcebergTable(opened, self.namespace, store, claim_table(store, topic, self.kind, SUFFIX))
        assert isinstance(table, IcebergTable)

        def run(work: LatestRows) -> list[Any]:
            self.reads.append(len(work.paths))
            return [write_latest(store, work, partition) for partition in range(work.partitions)]

        merge_latest(table, latest, topic, None if schema is None else latest.typed(*schema), run, self.log_event)

    def latest(self) -> list[dict[str, Any]]:
        table = self.catalog().load_table(("penstock", "web_orders_latest"))
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return found

    def check(self) -> None:
        """The table has one row for each key, and no other."""
        rows = self.latest()
        assert {(each["partition"], each["key"]): each["value"] for each in rows} == self.expected_rows
        assert len(rows) == len(self.expected_rows)


@pytest.fixture
def topic(tmp_path: Path) -> LatestTopic:
    return LatestTopic(folder=tmp_path, kind=TableKind.ICEBERG)


def test_table_has_the_latest_record_of_each_key_of_each_partition(topic: LatestTopic) -> None:
    topic.send(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"without a key"), (b"c", b"1"), (b"c", None))
    topic.send(1, (b"a", b"other"), (b"d", None), day=3)
    topic.archive()
    topic.merge()
    topic.check()
    assert len(topic.expected_rows) == 3


def test_later_runs_read_the_new_files_and_the_tables_own(topic: LatestTopic) -> None:
    chance = random.Random(5)
    for run in range(6):
        for number in range(3):
            records = [
                (f"k{chance.randrange(9)}".encode(), None if chance.random() < 0.3 else f"{run}-{number}".encode())
                for _ in range(5)
            ]
            topic.send(chance.randrange(2), *records, day=chance.randrange(2))
        topic.archive()
        topic.merge()
        topic.check()
    topic.merge()
    assert len(topic.reads) == 6  # the last run found nothing new
    assert max(topic.reads) < len(topic.table_files())


def test_key_that_was_deleted_stays_deleted_when_another_engine_rewrites_old_files(topic: LatestTopic) -> None:
    topic.send(0, (b"a", b"1"), (b"b", b"1"))
    topic.archive()
    topic.send(0, (b"a", None))
    topic.archive()
    topic.merge()
    topic.check()
    table = topic.catalog().load_table(("penstock", "web_orders"))
    [old] = [each.file for each in table.scan().plan_files() if "/000000000001-" in each.file.file_path]
    rewritten = old.file_path.replace("000000000001-", "rewritten-")  # the tombstone's file stays as it is
    shutil.copy(old.file_path.removeprefix("file://"), rewritten.removeprefix("file://"))
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        update.delete_data_file(old)
        update.append_data_file(_data_file(table, table.metadata, rewritten))
    topic.send(1, (b"x", b"1"))
    topic.archive()
    topic.merge()
    topic.check()
    assert topic.reads[-1] == len(topic.table_files())  # all were read


@pytest.mark.parametrize("before_next", [False, True])
def test_runs_that_are_killed_at_every_write_leave_each_key_once(topic: LatestTopic, before_next: bool) -> None:
    kills = 0
    for run in range(3):
        topic.send(0, (b"a", b"%d" % run), (b"b", None if run == 1 else b"%d" % run))
        topic.send(1, (b"c%d" % run, b"1"), (b"a", b"1"))
        topic.archive()
        while True:
            mortal = DyingWriter(before_next=before_next)
            lake = Intercepted(topic.lake, put_new=mortal.write)
            catalog = topic.catalog(commit_table=mortal.write, create_table=mortal.write)
            try:
                topic.merge(lake, catalog)
                break
            except Killed:
                kills += 1
        topic.check()
    assert kills > 5


def test_run_beside_another_one_changes_nothing_and_says_so(topic: LatestTopic) -> None:
    topic.send(0, (b"a", b"1"))
    topic.archive()
    topic.merge()
    topic.send(0, (b"a", b"2"))
    topic.archive()
    write = latest_rows.write_latest

    def overtaken(*arguments: Any) -> Any:
        made = write(*arguments)
        if not overtook:
            overtook.append(True)
            topic.merge()
        return made

    overtook: list[bool] = []
    table, opened = topic.table(), topic.catalog()
    found = topic.instance.topic_cache.read_through(topic.topic)
    latest = IcebergTable(opened, topic.namespace, topic.lake, "web_orders_latest")
    assert isinstance(table, IcebergTable)
    with pytest.raises(PenstockError, match="has another snapshot") as caught:
        merge_latest(
            table,
            latest,
            found,
            None,
            lambda work: [overtaken(topic.lake, work, each) for each in range(work.partitions)],
            topic.log_event,
        )
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    topic.check()


def test_latest_rows_have_the_columns_of_the_newest_schema(topic: LatestTopic) -> None:
    topic.send(0, (b"a", b'{"n": 1}'), (b"b", b'{"n": "x"}'))
    topic.archive(schema=SCHEMA)
    topic.merge(schema=SCHEMA)
    topic.send(0, (b"c", b'{"n": 3, "m": true}'))
    newer = ("json", json.dumps({"properties": {"n": {"type": "integer"}, "m": {"type": "boolean"}}}))
    topic.archive(schema=newer)
    topic.merge(schema=newer)
    topic.check()
    rows = sorted(topic.latest(), key=lambda row: bytes(row["key"]))
    assert [(each["n"], each["m"], each["_raw"]) for each in rows] == [
        (1, None, None),
        (None, None, b'{"n": "x"}'),
        (3, True, None),
    ]


def test_partition_with_too_many_keys_is_refused(topic: LatestTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_rows, "LATEST_KEYS_MAX", 2)
    topic.send(0, *((b"%d" % number, b"") for number in range(3)))
    topic.archive()
    with pytest.raises(PenstockError, match=r"partition 0 .* more than 2 keys: give the topic more partitions"):
        topic.merge()


def test_topic_without_rows_makes_no_table(topic: LatestTopic) -> None:
    topic.archive()
    topic.merge()
    assert not topic.catalog().table_exists(("penstock", "web_orders_latest"))
