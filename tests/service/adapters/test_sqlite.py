"""Data folders: nothing that was settled is lost, whatever the crash left, and no foreign folder is trusted."""

import dataclasses
import os
import pickle
import re
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, TopicName
from penstock_core.log.topic import DeletedTopic
from penstock_service.adapters.sqlite import journal
from penstock_service.adapters.sqlite.journal import READS
from penstock_service.adapters.sqlite.service import StoredService, open_service
from penstock_service.ports.compaction import CompactionStore
from penstock_service.ports.groups import GroupStore, MembershipStore
from penstock_service.ports.log import LogIndex
from penstock_service.ports.push import PushStore
from penstock_service.ports.runtime import JobCursors
from penstock_service.ports.segments import ARCHIVE, INLINE
from penstock_service.ports.topics import TopicStore
from penstock_service.ports.transactions import TransactionStore
from penstock_service.ports.zones import ZoneStateStore
from penstock_service.stores import Stores

PORTS = {
    "topics": TopicStore,
    "log": LogIndex,
    "groups": GroupStore,
    "memberships": MembershipStore,
    "push": PushStore,
    "transactions": TransactionStore,
    "compaction": CompactionStore,
    "zone_states": ZoneStateStore,
    "cursors": JobCursors,
}
SEGMENT = SegmentId(bytes(range(16)))
NOWHERE = PartitionKey(TopicId("none"), Partition(0))
INTERNAL = {"held", "push_events"}  # of the in-memory stores, among themselves and for the stream that they stand for
WAL = "penstock.db-wal"


def put(service: StoredService, number: int) -> None:
    service.stores.cursors.put(f"job-{number}", str(number))


def numbers(service: StoredService) -> list[int]:
    """The numbers that were put, which must be those from 0 on: a crash keeps a prefix."""
    found = [number for number in range(1_000) if service.stores.cursors.get(f"job-{number}") is not None]
    assert found == list(range(len(found)))
    return found


def copied(folder: Path, to: Path, wal_bytes: int | None = None) -> Path:
    """The files as a crash at this moment leaves them, with the end of the log torn off if you say so."""
    shutil.copytree(folder, to)
    if wal_bytes is not None:
        os.truncate(to / WAL, wal_bytes)
    return to


def test_settled_writes_survive_when_the_process_dies(tmp_path: Path) -> None:
    service = open_service(tmp_path / "data")
    for number in range(20):
        put(service, number)
        service.settle()
        after_crash = open_service(copied(tmp_path / "data", tmp_path / f"copy-{number}"))
        assert numbers(after_crash) == list(range(number + 1))
        after_crash.close()
    service.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.booleans(), min_size=1, max_size=12), cut=st.floats(0, 1), snapshot_at=st.integers(0, 12))
def test_crash_keeps_a_prefix_with_all_that_was_settled_when_the_log_is_torn(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[bool], cut: float, snapshot_at: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    service = open_service(folder / "data")
    settled: list[tuple[int, int]] = []  # bytes of the log, and the writes that were settled by then
    for number, is_settled in enumerate(steps):
        put(service, number)
        if number == snapshot_at:
            service.journal.snapshot()
        if is_settled:
            service.settle()
            settled.append(((folder / "data" / WAL).stat().st_size, number + 1))
    wal_bytes = int((folder / "data" / WAL).stat().st_size * cut)
    at_least = max((count for size, count in settled if size <= wal_bytes), default=0)
    after_crash = open_service(copied(folder / "data", folder / "copy", wal_bytes))
    assert len(numbers(after_crash)) >= at_least
    after_crash.close()
    service.close()


def test_commit_reaches_the_disk_before_it_returns(tmp_path: Path) -> None:
    service = open_service(tmp_path)
    full = 2
    assert service.database.read("PRAGMA synchronous") == [(full,)]
    assert service.database.read("PRAGMA journal_mode") == [("wal",)]
    service.close()


def test_segments_are_there_after_a_crash_when_their_refs_are(tmp_path: Path) -> None:
    """A segment is written before the ref that names it, into the same log: a prefix has no ref without a segment."""
    service = open_service(tmp_path / "data")
    service.stores.zones[0].put(SEGMENT, b"records", 0)
    put(service, 0)
    service.settle()
    after_crash = open_service(copied(tmp_path / "data", tmp_path / "copy"))
    assert numbers(after_crash) == [0]
    assert after_crash.stores.zones[0].get_whole(SEGMENT) == b"records"
    assert after_crash.stores.zones[1].get_whole(SEGMENT) is None
    after_crash.close()
    service.close()


def test_bytes_go_with_the_last_copy(tmp_path: Path) -> None:
    service = open_service(tmp_path)
    one, two = service.stores.zones[:2]
    for zone in (one, two):
        zone.put(SEGMENT, b"records", 0)
    one.delete([SEGMENT])
    assert two.get_whole(SEGMENT) == b"records"
    two.delete([SEGMENT])
    assert service.database.read("SELECT count(*) FROM segment") == [(0,)]
    service.close()


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    service = open_service(tmp_path)
    with pytest.raises(PenstockError, match="in use by another") as caught:
        open_service(tmp_path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    service.close()
    open_service(tmp_path).close()


@pytest.mark.parametrize("name", [".", "penstock.db"])
def test_folder_that_others_may_write_to_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    open_service(folder).close()
    (folder / name).chmod(0o777)
    with pytest.raises(PenstockError, match="chmod go-w"):
        open_service(folder)


def test_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    open_service(tmp_path / "data").close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "penstock.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_file_that_is_no_database_is_refused_unless_it_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "penstock.db").write_bytes(content)
    if not content:
        open_service(tmp_path).close()
        return
    with pytest.raises(PenstockError, match="cannot be opened"):
        open_service(tmp_path)


def test_folder_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_service(tmp_path).close()
    monkeypatch.setattr(journal, "stored_format", lambda stores: "other")
    with pytest.raises(PenstockError, match="another version"):
        open_service(tmp_path)


class Malice:
    """As a pickle of it is loaded, it would call a function of its writer's choice."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/nowhere/at/all",)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO journal (call) VALUES (?)", "INSERT OR REPLACE INTO snapshot VALUES (1, ?)"]
)
def test_foreign_classes_are_not_loaded(tmp_path: Path, statement: str) -> None:
    open_service(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute(statement, (pickle.dumps(Malice()),))
    connection.close()
    with pytest.raises(PenstockError, match=r"mkdir is no class"):
        open_service(tmp_path)


def pickled_name(module: str, name: str) -> bytes:
    """A pickle that loads what the module has under the name, which may have dots."""
    texts = b"".join(b"\x8c" + bytes([len(each)]) + each.encode() for each in (module, name))
    return b"\x80\x04" + texts + b"\x93."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("penstock_core.errors", "PenstockError.__init__.__class__"),
        ("penstock_core.errors", "PenstockError.__init__.__globals__"),
        ("penstock_core.errors", "Enum"),  # what a module has imported is none of its own
        ("penstock_core.acls.principal", "iam_principal"),
        ("penstock_core.other", "PenstockError"),
        ("penstock_service.adapters.sqlite.journal", "Journal"),
        ("builtins", "eval"),
        ("builtins", "set.__init__"),
    ],
)
def test_no_name_but_those_of_listed_classes_is_loaded(tmp_path: Path, module: str, name: str) -> None:
    open_service(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute("INSERT INTO journal (call) VALUES (?)", (pickled_name(module, name),))
    connection.close()
    with pytest.raises(PenstockError, match=re.escape(f"{module}.{name} is no class")):
        open_service(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        ("cursors", "__init__", (), {}),
        ("cursors", "get", ("job",), {}),
        ("other", "put", ("job", "1"), {}),
        ("cursors", "put", ["job", "1"], {}),
        "cursors",
    ],
)
def test_row_that_is_no_change_of_a_store_is_refused(tmp_path: Path, row: object) -> None:
    open_service(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute("INSERT INTO journal (call) VALUES (?)", (pickle.dumps(row),))
    connection.close()
    with pytest.raises(PenstockError, match="no change of a store"):
        open_service(tmp_path)


def test_snapshot_of_other_stores_is_refused(tmp_path: Path) -> None:
    open_service(tmp_path).close()
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        connection.execute("UPDATE snapshot SET state = ?", (pickle.dumps({"cursors": {"job": "1"}}),))
    connection.close()
    with pytest.raises(PenstockError, match="its snapshot holds other stores"):
        open_service(tmp_path)


def test_service_ends_when_the_disk_is_full(tmp_path: Path) -> None:
    service = open_service(tmp_path / "data")
    put(service, 0)
    service.settle()
    service.database.write("PRAGMA max_page_count = 20")

    def fill() -> None:
        for number in range(1, 1_000):
            service.stores.cursors.put(f"job-{number}", "x" * 10_000)
            service.settle()

    with pytest.raises(PenstockError) as caught:
        fill()
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert caught.value.maybe_applied
    assert "full" in (service.database.failure or "")
    with pytest.raises(PenstockError, match="full"):
        service.settle()
    service.close()
    again = open_service(tmp_path / "data")
    assert again.stores.cursors.get("job-0") == "0"
    again.close()


def test_journal_becomes_a_snapshot_when_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_JOURNAL_BYTES_MIN", 1_000)
    service = open_service(tmp_path)
    made = 0
    for number in range(200):
        put(service, number)
        made += service.journal.snapshot_if_due()
    assert 2 < made < 50
    service.settle()
    service.database.close()
    again = open_service(tmp_path)
    assert numbers(again) == list(range(200))
    again.close()


def test_call_that_was_refused_is_not_done_again(tmp_path: Path) -> None:
    service = open_service(tmp_path)
    note = DeletedTopic(topic_id=TopicId("t"), name=TopicName("orders"), partitions=1, deleted_at_ms=1)
    service.stores.topics.begin(note)
    before = service.database.read("SELECT count(*) FROM journal")
    with pytest.raises(PenstockError):
        service.stores.log.raise_log_start(NOWHERE, Offset(5))
    assert service.database.read("SELECT count(*) FROM journal") == before
    service.close()


def test_every_store_is_kept() -> None:
    names = {field.name for field in dataclasses.fields(Stores)}
    queues = {"repair_queue", "wake_ups", "timer_triggers", "deliveries", "targets"}
    assert names - READS.keys() == {"zones", "fallback_zones", ARCHIVE, INLINE, "inline_bytes_max"} | queues


@pytest.mark.parametrize("name", PORTS)
def test_reads_are_methods_of_the_port(name: str) -> None:
    methods = {each for each in vars(PORTS[name]) if not each.startswith("_")}
    assert READS[name] <= methods | INTERNAL
