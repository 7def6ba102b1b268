"""The in-memory stores made durable: each call that changes one is written down, and done again at the next start.

```
change   with the database held: call the store, then write (store, method, arguments) as a row of `journal`
start    load `snapshot`, then make the calls of `journal` in their order
snapshot with the database held: write all stores as one value, and empty `journal`, in one transaction
```

A store's methods depend on their arguments and its state alone, so the same calls in the same order give the same
state. A call that raises has changed nothing, and is not written. A call that turns out to change nothing may be.

Values are pickled. A closed list of classes is loaded, those of the core and of these stores, and no other name. So the
file of a stranger holds odd values at most, and runs nothing. Other users cannot write the file of yours. Its format is
a hash of those classes: another version of Penstock refuses it rather than misread it.
"""

import dataclasses
import hashlib
import importlib
import io
import pickle
import pkgutil
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

import penstock_core
import penstock_service.adapters.memory as memory
from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.sqlite.database import Database

S = TypeVar("S")

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), state BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS journal (number INTEGER PRIMARY KEY, call BLOB NOT NULL)",
)
# Every other public method of a store counts as a change: a new one is safe before somebody thinks of this list.
READS: Mapping[str, frozenset[str]] = {
    "topics": frozenset(["get", "list", "deleted"]),
    "log": frozenset(["held", "heads", "evicted_producer", "pages", "pages_before", "push_events"]),
    "groups": frozenset(["held", "leases", "lease_page", "find_leases"]),
    "memberships": frozenset(
        ["get_group", "find_groups", "registered", "is_registered", "members", "find_members", "get_target"],
    ),
    "share": frozenset(["held", "get_group", "list_groups", "hidden_groups", "find_states"]),
    "push": frozenset(
        [
            *("held", "get_subscription", "list_subscriptions", "subscriptions_of", "orphaned_states"),
            *("find_lane", "find_deliveries", "states_of"),
        ]
    ),
    "transactions": frozenset(["get", "stages"]),
    "compaction": frozenset(["retired", "find_merged"]),
    "timers": frozenset(["get", "waiting", "due_minutes", "switched_on_ms"]),
    "zone_states": frozenset(["get", "get_pass"]),
    "acls": frozenset(["revision", "get"]),
    "cursors": frozenset(["get"]),
    "audit": frozenset(["entries"]),
    "quotas": frozenset(["list", "claims"]),
}

_JOURNAL_BYTES_MIN = 4 * 2**20  # a journal this long, and longer than the last snapshot, becomes the next snapshot
_PLAIN_CLASSES = {("builtins", "set"), ("builtins", "frozenset"), ("builtins", "bytearray"), ("collections", "deque")}
_PACKAGES = (penstock_core.__name__, memory.__name__)
_LOCKS: Mapping[type, str] = {type(threading.Lock()): "lock", type(threading.RLock()): "reentrant lock"}
_NEW_LOCKS: Mapping[str, Callable[[], object]] = {"lock": threading.Lock, "reentrant lock": threading.RLock}


class Journal:
    """The stores of one database by name, as they were when it was last settled."""

    def __init__(self, database: Database, stores: Mapping[str, object]) -> None:
        self._database = database
        self._stores: Mapping[str, object] = stores
        self._bytes = 0
        self._snapshot_bytes = 0
        self._check_format()
        self._load()

    @property
    def stores(self) -> Mapping[str, object]:
        """The stores in memory by name. Only reads may go to them directly."""
        return self._stores

    def journalled(self, name: str, like: S) -> S:  # noqa: ARG002 - it tells the type of the result
        """The store of that name, as a port of the type of `like`. It writes each change down before it returns."""
        return cast(S, _JournalledStore(self, name, self._stores[name]))

    def change(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a store's method, and write the call down."""
        with self._database.held():
            result = getattr(self._stores[name], method)(*args, **kwargs)
            call = _dump((name, method, args, kwargs))
            self._database.write("INSERT INTO journal (call) VALUES (?)", (call,))
            self._bytes += len(call)
        return result

    def snapshot_if_due(self) -> bool:
        """Write a snapshot if the journal has become longer than the last one. Holds the database meanwhile."""
        if self._bytes < max(_JOURNAL_BYTES_MIN, self._snapshot_bytes):
            return False
        with self._database.held():
            is_due = self._bytes > 0  # another thread may have been faster
            if is_due:
                self.snapshot()
        return is_due

    def snapshot(self) -> None:
        """Write a snapshot and empty the journal, both or neither. Holds the database meanwhile."""
        with self._database.held():
            state = _dump(dict(self._stores))
            self._database.write("INSERT OR REPLACE INTO snapshot VALUES (1, ?)", (state,))
            self._database.write("DELETE FROM journal")
            self._bytes, self._snapshot_bytes = 0, len(state)

    def _check_format(self) -> None:
        expected = stored_format(self._stores)
        found = self._database.read("SELECT value FROM meta WHERE name = 'format'")
        if not found:
            self._database.write("INSERT INTO meta VALUES ('format', ?)", (expected,))
        elif found[0][0] != expected:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                "the data folder was written by another version of Penstock, whose values look different: copy its"
                " topics with that version, or take another folder",
            )

    def _load(self) -> None:
        for (state,) in self._database.read("SELECT state FROM snapshot"):
            loaded = _load_pickle(state)
            if not isinstance(loaded, dict) or _types(loaded) != _types(self._stores):
                raise _unreadable("its snapshot holds other stores")
            self._stores = loaded
            self._snapshot_bytes = len(state)
        try:
            for (call,) in self._database.read("SELECT call FROM journal ORDER BY number"):
                name, method, args, kwargs = _parse_call(_load_pickle(call))
                getattr(self._stores[name], method)(*args, **kwargs)
                self._bytes += len(call)
        except PenstockError as error:
            raise PenstockError(
                ErrorCode.INTERNAL, f"the data folder's journal cannot be done again: {error}; take another folder"
            ) from error


class _JournalledStore:
    """Stands for a store: reads go to it, changes to the journal."""

    def __init__(self, journal: Journal, name: str, store: object) -> None:
        self._journal = journal
        self._name = name
        self._store = store

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        if method in READS[self._name] or method.startswith("_"):
            return found

        def change(*args: Any, **kwargs: Any) -> Any:
            return self._journal.change(self._name, method, args, kwargs)

        return change


def stored_format(stores: Mapping[str, object]) -> str:
    """A hash of the names and fields of all classes that a file may hold, and of the stores' attributes."""
    shapes = {f"{name}: {sorted(vars(store))}" for name, store in stores.items()}
    shapes |= {_shape(name, each) for name, each in _classes().items()}
    return hashlib.sha256("\n".join(sorted(shapes)).encode()).hexdigest()


@cache
def _classes() -> Mapping[str, type]:
    """The classes of the core and of the stores in memory, by their whole names."""
    found = {}
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and f"{value.__module__}.".startswith(
                    tuple(f"{each}." for each in _PACKAGES)
                ):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


def _shape(name: str, value: type) -> str:
    if dataclasses.is_dataclass(value):
        return f"{name}: {[(field.name, str(field.type)) for field in dataclasses.fields(value)]}"
    if issubclass(value, Enum):
        return f"{name}: {[*value.__members__]}"
    return f"{name}: {getattr(value, '_fields', ())}"


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> str | None:
        return _LOCKS.get(type(value))


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str) -> object:
        return _NEW_LOCKS[name]()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN_CLASSES:
            return super().find_class(module, name)
        if "." in name or f"{module}.{name}" not in _classes():
            raise pickle.UnpicklingError(f"{module}.{name} is no class that a data folder holds")
        return _classes()[f"{module}.{name}"]


def _dump(value: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def _load_pickle(data: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError, ValueError) as error:
        raise _unreadable(str(error)) from error


def _parse_call(value: Any) -> tuple[str, str, tuple[Any, ...], dict[str, Any]]:
    """The store's name, a method that changes it, and its arguments. Raises INVALID_CONFIG for another value."""
    match value:
        case (str(name), str(method), tuple(args), dict(kwargs)) if name in READS:
            if not method.startswith("_") and method not in READS[name]:
                return name, method, args, kwargs
    raise _unreadable("its journal has a row that is no change of a store")


def _types(stores: Mapping[str, object]) -> dict[str, type]:
    return {name: type(store) for name, store in stores.items()}


def _unreadable(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, f"the data folder cannot be read: {why}; take another folder")
