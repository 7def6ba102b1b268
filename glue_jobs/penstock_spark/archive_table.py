"""The table that a topic is archived into: its name, its plans, and what makes a plan's files part of it.

```
<output>/<table>/data/day=2026-11-21/<plan>-<group>.parquet
                 metadata/…                       Iceberg's own, where there is a catalog
                 _penstock/table.json             whose table it is
                           plans/<plan>.json      what the commit holds
                           plans/<plan>/<group>.json   the days of a group
                           commits/<plan>.json    plain Parquet only: the plan's files are all there
```
Engines that list folders pass over names that begin with an underscore. Without a catalog they see files before the
commit: of a plan that is under way, some; never a record twice.
"""

import json
import re
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.topic import Topic
from penstock_spark.archive_files import ArchivedFile, plan_path
from penstock_spark.archive_plan import Committed, Plan, decode_plan, encode_plan, offsets_of_json
from penstock_spark.result_store import ResultStore

LAKE = "lake"  # of the bucket for results, unless a job is told where


class TableKind(Enum):
    """What readers find."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"


class ArchiveTable(Protocol):
    """One topic's table, by its name."""

    @property
    def name(self) -> str: ...

    def committed(self) -> Committed:
        """How far the table is now."""

    def commit(self, plan: Plan, files: Sequence[ArchivedFile]) -> None:
        """Makes the files part of the table, and `plan.next_offsets` its own, at once or not at all; nothing if that
        was done before. The plan must follow the newest commit."""


class ParquetTable:
    """A table without catalog: files in folders, and a commit is an object that says that they are all there."""

    def __init__(self, lake: ResultStore, name: str) -> None:
        self._lake = lake
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def committed(self) -> Committed:
        """One list for 1,000 commits, and one get."""
        folder = f"{self._name}/_penstock/commits/"
        newest = max(self._lake.names(folder), default=None)
        found = None if newest is None else self._lake.get(folder + newest)
        if newest is None or found is None:
            return Committed()
        return Committed(
            number=int(newest.removesuffix(".json")), next_offsets=offsets_of_json(json.loads(found)["next_offsets"])
        )

    def commit(self, plan: Plan, files: Sequence[ArchivedFile]) -> None:
        """One put."""
        content = {"next_offsets": plan.next_offsets, "files": [each.path for each in files]}
        self._lake.put_new(commit_path(self._name, plan.number), json.dumps(content).encode())


def commit_path(table: str, number: int) -> str:
    """Where a commit of a table without catalog lies."""
    return f"{table}/_penstock/commits/{number:012}.json"


def claim_table(lake: ResultStore, topic: Topic, kind: TableKind) -> str:
    """The name of the topic's table, which is its own from here on: the topic's, in lower case and `_` for `.` and `-`;
    with a part of the topic's id behind it where another topic has that, such as one that was deleted since.

    A get, and a put for a new table. Raises INVALID_CONFIG if the topic's table is of the other kind.
    """
    plain = re.sub(r"[^a-z0-9_]", "_", topic.name.lower())
    for name in (plain, f"{plain}_{topic.topic_id[:8]}", f"{plain}_{topic.topic_id}"):
        path = _table_path(name)
        mine = {"topic": topic.name, "topic_id": topic.topic_id, "kind": kind.value}
        found = lake.get(path)
        if found is None and not lake.put_new(path, json.dumps(mine).encode()):
            found = lake.get(path)
        owner = mine if found is None else json.loads(found)
        if owner["topic_id"] != topic.topic_id:
            continue
        if owner["kind"] != kind.value:
            raise _other_kind(lake.uri(name), owner["kind"])
        return name
    raise PenstockError(ErrorCode.INVALID_CONFIG, f"all names for a table of topic {topic.name!r} are taken")


def kind_of_table(lake: ResultStore, name: str) -> TableKind:
    """Raises NOT_FOUND's UNKNOWN_TOPIC if no topic was archived into such a table. One get."""
    found = lake.get(_table_path(name))
    if found is None:
        raise PenstockError(
            ErrorCode.UNKNOWN_TOPIC, f"there is no archived table at {lake.uri(name)}: give its --output and its name"
        )
    return TableKind(json.loads(found)["kind"])


def find_plan(lake: ResultStore, table: str, number: int) -> Plan | None:
    """A plan that was put. One get."""
    found = lake.get(plan_path(table, number))
    return None if found is None else decode_plan(found)


def put_plan(lake: ResultStore, table: str, plan: Plan) -> Plan:
    """The plan of that number: this one, or the one that another run has put before. One put, and a get then."""
    if lake.put_new(plan_path(table, plan.number), encode_plan(plan)):
        return plan
    found = find_plan(lake, table, plan.number)
    return plan if found is None else found


def _table_path(name: str) -> str:
    return f"{name}/_penstock/table.json"


def _other_kind(uri: str, kind: str) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_CONFIG,
        f"{uri} is archived as {kind}: give the same --catalog as before, or another --output",
    )
