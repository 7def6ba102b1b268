"""Data folders: nothing that was settled is lost, whatever the crash left, and no foreign folder is trusted."""

import hashlib
import os
import pickle
import shutil
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_service.adapters.sqlite.database import Items, format_item, parse_item
from penstock_service.adapters.sqlite.service import StoredService, open_service
from penstock_service.adapters.tables.store import measured_item
from penstock_service.adapters.tables.tables import Change
from tests.support.service import SteppedClock
from tests.support.tables import items_of

SEGMENT = SegmentId(bytes(range(16)))
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
@given(steps=st.lists(st.booleans(), min_size=1, max_size=12), cut=st.floats(0, 1))
def test_crash_keeps_a_prefix_with_all_that_was_settled_when_the_log_is_torn(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[bool], cut: float
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    service = open_service(folder / "data")
    settled: list[tuple[int, int]] = []  # bytes of the log, and the writes that were settled by then
    for number, is_settled in enumerate(steps):
        put(service, number)
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


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".gitignore").touch()
    open_service(tmp_path / "data").close()
    (tmp_path / "data" / "notes.txt").touch()
    open_service(tmp_path / "data").close()
    with pytest.raises(PenstockError, match=r"has no data of `penstock dev`, but other files, such as 'data'"):
        open_service(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


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


def changed_file(folder: Path, statement: str, *values: object) -> Path:
    """A folder whose file somebody has changed."""
    open_service(folder).close()
    with sqlite3.connect(folder / "penstock.db") as connection:
        connection.execute(statement, values)
    connection.close()
    return folder


def test_folder_of_another_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    changed_file(tmp_path, "UPDATE meta SET value = 'items 2' WHERE name = 'format'")
    with pytest.raises(PenstockError, match=r"'items 2'.* copy its topics .* or take another folder") as caught:
        open_service(tmp_path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


class Malice:
    """As a pickle of it is loaded, it would call a function of its writer's choice."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(Path.cwd() / "made-by-malice"),)


def test_folder_of_pickled_calls_is_refused_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Development versions kept pickles, and a hash in place of the format."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "penstock.db") as connection:
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute("CREATE TABLE journal (number INTEGER PRIMARY KEY, call BLOB NOT NULL)")
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (hashlib.sha256(b"classes").hexdigest(),))
        connection.execute("INSERT INTO journal (call) VALUES (?)", (pickle.dumps(Malice()),))
    connection.close()
    with pytest.raises(PenstockError, match="copy its topics with the version that wrote it") as caught:
        open_service(folder)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert not (tmp_path / "made-by-malice").exists()


@pytest.mark.parametrize(
    ("table", "item"),
    [
        ("log", b""),
        ("log", 7),
        ("log", "{"),
        ("log", "[]"),
        ("log", "7"),
        ("log", '{"body": 7}'),
        ("log", '{"body": {"B": "no base64"}}'),
        ("log", '{"body": {"X": "unknown"}}'),
        ("log", '{"number": {"N": "NaN"}}'),
        ("log", '{"list": ' + "[" * 100_000),
        ("log", '{"pk": {"N": "1"}}'),
        ("other", "{}"),
        ("log", pickle.dumps(Malice())),
    ],
)
def test_row_that_is_no_item_is_refused(tmp_path: Path, table: str, item: object) -> None:
    changed_file(tmp_path, "INSERT INTO items VALUES (?, 'a', 'b', ?)", table, item)
    with pytest.raises(PenstockError, match="is no item") as caught:
        open_service(tmp_path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


TEXTS = st.text(st.characters(codec="utf-8"), max_size=9)
NAMES = st.one_of(st.sampled_from(["B", "BS", "S", "M", "pk2"]), TEXTS.filter(bool))
VALUES = st.recursive(
    st.one_of(
        TEXTS.map(lambda text: {"S": text}),
        st.integers(-(10**37), 10**37).map(lambda number: {"N": str(number)}),
        st.binary(max_size=9).map(lambda content: {"B": content}),
        st.booleans().map(lambda truth: {"BOOL": truth}),
        st.just({"NULL": True}),
        st.sets(TEXTS, min_size=1).map(lambda texts: {"SS": sorted(texts)}),
        st.sets(st.binary(max_size=9), min_size=1).map(lambda contents: {"BS": sorted(contents)}),
    ),
    lambda each: st.one_of(
        st.lists(each, max_size=4).map(lambda values: {"L": values}),
        st.dictionaries(NAMES, each, max_size=4).map(lambda values: {"M": values}),
    ),
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_item_is_the_same_after_its_row(attributes: Mapping[str, Any]) -> None:
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}, **attributes}
    stored = parse_item("a", "b", format_item(item))
    assert stored == item
    assert measured_item(stored) == measured_item(item)


def put_actions(*sorts: str) -> list[dict[str, Any]]:
    return [{"Put": {"TableName": "log", "Item": {"pk": {"S": "a"}, "sk": {"S": sort}}}} for sort in sorts]


def test_commit_waits_for_the_end_of_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash behind a commit between its two changes would leave the first one alone."""
    note, committing = Items.note, list[threading.Thread]()

    def note_while_another_request_settles(items: Items, change: Change) -> None:
        note(items, change)
        if change.key["sk"]["S"] == "first":
            committing.append(threading.Thread(target=service.settle))
            committing[0].start()
            committing[0].join(0.1)  # so that a commit that does not wait has its time

    with monkeypatch.context() as patches:
        patches.setattr(Items, "note", note_while_another_request_settles)
        service = open_service(tmp_path / "data")
    service.tables.transact_write_items(TransactItems=put_actions("first", "second"))
    committing[0].join()
    after_crash = open_service(copied(tmp_path / "data", tmp_path / "copy"))
    assert len(items_of(after_crash.tables)) in (0, 2)
    after_crash.close()
    service.close()


def test_item_that_changed_often_is_one_row_and_one_that_is_gone_is_none(tmp_path: Path) -> None:
    service = open_service(tmp_path)
    key = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    for number in range(9):
        service.tables.put_item(TableName="log", Item={**key, "number": {"N": str(number)}})
    service.settle()
    rows = "SELECT item FROM items WHERE tbl = 'log'"
    assert service.database.read(rows) == [('{"number":{"N":"8"}}',)]
    service.tables.delete_item(TableName="log", Key=key)
    service.settle()
    assert service.database.read(rows) == []
    service.close()


def test_item_that_expires_goes_from_the_folder_too(tmp_path: Path) -> None:
    clock = SteppedClock()
    service = open_service(tmp_path, clock)
    until_s = clock.now_ms() // 1_000 + 60
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}, "expires_at_s": {"N": str(until_s)}}
    service.tables.put_item(TableName="log", Item=item)
    service.close()
    for seconds, count in ((0, 1), (90, 0)):
        clock.sleep_ms(seconds * 1_000)
        again = open_service(tmp_path, clock)
        assert len(again.database.read("SELECT * FROM items WHERE pk = 'a'")) == 1, "a start removes none"
        again.tables.expire(10)
        again.settle()
        assert len(again.database.read("SELECT * FROM items WHERE pk = 'a'")) == count
        again.close()


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
