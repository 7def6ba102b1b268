"""One SQLite file: its lock, its order of writes, and the moment from which they survive a crash.

Writes join the open transaction at once, in the order of their calls. `settle` commits it, and returns when all writes
before the call are on the disk. One commit serves all callers that wait. So a crash keeps a prefix of the writes, and
every write that some `settle` covered. Changes of memory that are written at each commit belong to that prefix too.

A write that fails leaves memory and file apart. Then every later call fails, so nothing wrong is ever stored or told.

The items of the tables as rows of the database, each as JSON: data alone, so a folder can run no code.

```
start    put the items of all rows into the tables
change   the tables report it, under their lock: note the newest image of the item
settle   with the database held: take all images at a moment between two calls, write them, COMMIT
```

A commit has all calls of the tables before that moment, and no part of a later one. So a transaction is on the disk
whole or not at all, and an item that changed a hundred times since the last commit is written once.

The folder has a format of its own, which is that of the rows. The items have the formats of penstock_core/formats.py.
"""

import base64
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables.tables import Change, Tables

_FILE = "penstock.db"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",  # one process has the file: no other one may read or write it
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit returns once the log is on the disk
    "fullfsync = ON",  # on macOS fsync alone does not reach the disk
    "checkpoint_fullfsync = ON",
)
FORMAT = "items 1"
# WITHOUT ROWID, rows above a quarter of a page would each take a page of their own.
_SCHEMA = "CREATE TABLE IF NOT EXISTS items (tbl TEXT, pk TEXT, sk TEXT, item TEXT NOT NULL, PRIMARY KEY (tbl, pk, sk))"
_PUT = "INSERT INTO items VALUES (?, ?, ?, ?) ON CONFLICT (tbl, pk, sk) DO UPDATE SET item = excluded.item"
_DELETE = "DELETE FROM items WHERE tbl = ? AND pk = ? AND sk = ?"
Row = tuple[str, str, str]


class Database:
    """The file in `folder`, which is made if it is missing. The process holds it until `close`.

    Raises INVALID_CONFIG if another process has it, if it is no database, or if other users may write to it.
    """

    def __init__(self, folder: Path, schema: Sequence[str]) -> None:
        self._lock = threading.RLock()
        self._failure: str | None = None
        self._begun = 0  # commits
        self._ended = 0
        self._before_commit: Callable[[], None] = _nothing
        path = _private_file(folder)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            for pragma in _PRAGMAS:
                self._connection.execute(f"PRAGMA {pragma}")
            for statement in ("BEGIN IMMEDIATE", *schema, "COMMIT"):
                self._connection.execute(statement)
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise PenstockError(
                    ErrorCode.INVALID_CONFIG,
                    f"{str(folder)!r:.300} is in use by another `penstock dev`: stop that one, or take another folder",
                ) from error
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{str(path)!r:.300} cannot be opened: {error}") from error

    @property
    def failure(self) -> str | None:
        """The reason why the database takes no more calls, None if it does."""
        return self._failure

    def before_commit(self, write: Callable[[], None]) -> None:
        """Have each commit call `write` first, which writes what has changed in memory. It may raise as `write`."""
        self._before_commit = write

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which no other thread writes."""
        with self._lock:
            self._check()
            yield

    def write(self, statement: str, values: Sequence[object] = ()) -> None:
        """Write within the open transaction. Raises STORAGE_UNAVAILABLE, as does every later call."""
        with self._lock:
            self._check()
            try:
                if not self._connection.in_transaction:
                    self._connection.execute("BEGIN")
                self._connection.execute(statement, values)
            except sqlite3.Error as error:
                self._fail(error)

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows, with all writes so far. Raises STORAGE_UNAVAILABLE."""
        with self._lock:
            self._check()
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                self._fail(error)

    def settle(self) -> None:
        """Return once every write before this call is on the disk. Raises STORAGE_UNAVAILABLE, `maybe_applied`."""
        begun = self._begun
        with self._lock:
            self._check()
            if self._ended > begun:  # a commit that began after this call has covered it
                return
            self._begun += 1
            try:
                self._before_commit()
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._fail(error)
            self._ended = self._begun

    def close(self) -> None:
        """Settle, and give up the file. Writes that cannot be settled are lost: no answer told of them."""
        with self._lock:
            try:
                if self._failure is None:
                    self.settle()
            finally:
                self._connection.close()
                self._failure = self._failure or "closed"

    def _check(self) -> None:
        if self._failure is not None:
            raise _unavailable(self._failure)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        self._failure = str(error)
        raise _unavailable(self._failure) from error


def _nothing() -> None:
    pass


def _unavailable(failure: str) -> PenstockError:
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"the data folder takes no more writes ({failure}): start the server again once that is mended",
        maybe_applied=True,
    )


def _private_file(folder: Path) -> Path:
    """The file's path; it exists then. It has secrets, and tells who may do what: no other user may have written it."""
    path = folder / _FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists() and (other := next((name for name in os.listdir(folder) if name[0] != "."), None)):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"{str(folder)!r:.300} has no data of `penstock dev`, but other files, such as {other!r:.100}: "
                "take a new folder",
            )
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        for each in (folder, path):
            found = each.stat()
            is_mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
            if not is_mine or (os.name == "posix" and found.st_mode & _OTHERS_WRITE):
                raise PenstockError(
                    ErrorCode.INVALID_CONFIG,
                    f"{str(each)!r:.300} belongs to another user, or others may write to it: take a folder of your own,"
                    " or run `chmod go-w` on it",
                )
    except OSError as error:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{str(folder)!r:.300} cannot hold data: {error.strerror}"
        ) from error
    return path


class Items:
    """The rows of one database. Give `note` to the tables, and `write` to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed: dict[Row, Mapping[str, Any] | None] = {}
        self._tables: Tables | None = None

    def note(self, change: Change) -> None:
        """Notes that the item has changed, or is gone."""
        key = change.key
        self._changed[change.table, key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]] = change.new

    def load(self, tables: Tables) -> None:
        """Puts all stored items into these tables, whose changes `write` writes from now on.

        Raises INVALID_CONFIG if the folder has another format, or holds what is no item.
        """
        self._check_format()
        self._database.write(_SCHEMA)
        for table, partition, sort, item in self._database.read("SELECT tbl, pk, sk, item FROM items"):
            try:
                tables.put_item(TableName=table, Item=parse_item(partition, sort, item))
            except (AnsweredError, ValueError, TypeError, AttributeError, RecursionError) as error:
                raise PenstockError(
                    ErrorCode.INVALID_CONFIG,
                    f"the row {(table, partition, sort)!r:.300} of the data folder is no item ({error!s:.300}): take "
                    "another folder",
                ) from error
        self._changed.clear()
        self._tables = tables

    def write(self) -> None:
        """Writes the newest image of each changed item. The caller holds the database, and commits."""
        if self._tables is None:
            return
        with self._tables.held():
            changed, self._changed = self._changed, {}
        for row, item in changed.items():
            if item is None:
                self._database.write(_DELETE, row)
            else:
                self._database.write(_PUT, (*row, format_item(item)))

    def _check_format(self) -> None:
        found = self._database.read("SELECT value FROM meta WHERE name = 'format'")
        if not found:
            self._database.write("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))
        elif found[0][0] != FORMAT:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"another version of Penstock wrote the data folder, in the format {found[0][0]!r:.80}, and this one "
                f"reads {FORMAT!r} only: copy its topics with the version that wrote it, or take another folder",
            )


def format_item(item: Mapping[str, Any]) -> str:
    """The item without its keys as JSON, bytes in base64."""
    rest = {name: value for name, value in item.items() if name not in (PARTITION_KEY, SORT_KEY)}
    return json.dumps(rest, default=_text_of, ensure_ascii=False, separators=(",", ":"))


def parse_item(partition: str, sort: str, text: str) -> Mapping[str, Any]:
    """The inverse of `format_item`. Raises ValueError for what is no JSON, and RecursionError for what nests deeply."""
    return {PARTITION_KEY: {"S": partition}, SORT_KEY: {"S": sort}, **json.loads(text, object_hook=_with_bytes)}


def _text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Binary values are `{"B": text}` and `{"BS": [text, …]}`. An attribute of such a name has a map in that place."""
    if len(value) == 1:
        [(kind, content)] = value.items()
        if kind == "B" and isinstance(content, str):
            return {"B": base64.b64decode(content, validate=True)}
        if kind == "BS" and isinstance(content, list):
            return {"BS": [base64.b64decode(each, validate=True) for each in content]}
    return value
