"""One SQLite file: its lock, its order of writes, and the moment from which they survive a crash.

Writes join the open transaction at once, in the order of their calls. `settle` commits it, and returns when all writes
before the call are on the disk. One commit serves all callers that wait. So a crash keeps a prefix of the writes, and
every write that some `settle` covered. Changes of memory that are written at each commit belong to that prefix too.

A write that fails leaves memory and file apart. Then every later call fails, so nothing wrong is ever stored or told.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from penstock_core.errors import ErrorCode, PenstockError

_FILE = "penstock.db"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",  # one process has the file: no other one may read or write it
    "journal_mode = WAL",
    "synchronous = FULL",  # a commit returns once the log is on the disk
    "fullfsync = ON",  # on macOS fsync alone does not reach the disk
    "checkpoint_fullfsync = ON",
)


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
