"""The items of the tables as rows of the database, each as JSON: data alone, so a folder can run no code.

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
from collections.abc import Mapping
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.sqlite.database import Database
from penstock_service.adapters.tables.tables import Change, Tables

FORMAT = "items 1"
# WITHOUT ROWID, rows above a quarter of a page would each take a page of their own.
_SCHEMA = "CREATE TABLE IF NOT EXISTS items (tbl TEXT, pk TEXT, sk TEXT, item TEXT NOT NULL, PRIMARY KEY (tbl, pk, sk))"
_PUT = "INSERT INTO items VALUES (?, ?, ?, ?) ON CONFLICT (tbl, pk, sk) DO UPDATE SET item = excluded.item"
_DELETE = "DELETE FROM items WHERE tbl = ? AND pk = ? AND sk = ?"

Row = tuple[str, str, str]


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
