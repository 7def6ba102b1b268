"""The table that a topic is archived into: its name, its plans, and the commit that adds a plan's files to it.

```
<output>/<table>/data/day=2026-11-21/<plan>-<group>.parquet
                 metadata/…                       Iceberg's own files, if there is a catalog
                 _penstock/table.json             the topic that owns the table
                           plans/<plan>.json      the content of the commit
                           plans/<plan>/<group>.json   the days of a group
                           commits/<plan>.json    plain Parquet only: all files of the plan exist
```
Engines that list folders skip names that begin with an underscore. Without a catalog, they see files before the commit:
some files of a plan in progress, but never a record twice.
"""

import json
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.topic import Topic
from penstock_spark.archive.archive_files import ArchivedFile, plan_path
from penstock_spark.archive.archive_plan import CommittedFiles, Plan, decode_plan, encode_plan, offsets_of_json
from penstock_spark.arguments import plain_table_name
from penstock_spark.result_store import ResultStore

LAKE = "lake"  # the folder in the bucket for results, unless --output names another place


class TableKind(Enum):
    """The form of a table."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"


class ArchiveTable(Protocol):
    """One topic's table."""

    @property
    def name(self) -> str:
        """The table's name."""

    def committed(self) -> CommittedFiles:
        """The present progress of the table."""

    def commit(self, plan: Plan, files: Sequence[ArchivedFile]) -> None:
        """Add the files and `plan.next_offsets` to the table, at once or not at all.

        Does nothing if the plan is committed.

        The plan must follow the newest commit.
        """


class ParquetTable:
    """A table without a catalog: files in folders.

    Its commit is an object that says that all files of the plan exist.
    """

    def __init__(self, lake: ResultStore, name: str) -> None:
        self._lake = lake
        self._name = name

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    def committed(self) -> CommittedFiles:
        """The present progress of the table. One list for each 1,000 commits, and one get."""
        folder = f"{self._name}/_penstock/commits/"
        newest = max(self._lake.names(folder), default=None)
        found = None if newest is None else self._lake.get(folder + newest)
        if newest is None or found is None:
            return CommittedFiles()
        return CommittedFiles(
            number=int(newest.removesuffix(".json")), next_offsets=offsets_of_json(json.loads(found)["next_offsets"])
        )

    def commit(self, plan: Plan, files: Sequence[ArchivedFile]) -> None:
        """Add the plan's files to the table. One put."""
        content = {"next_offsets": plan.next_offsets, "files": [each.path for each in files]}
        self._lake.put_new(commit_path(self._name, plan.number), json.dumps(content).encode())


def commit_path(table: str, number: int) -> str:
    """The path of a commit of a table without a catalog."""
    return f"{table}/_penstock/commits/{number:012}.json"


def claim_table(lake: ResultStore, topic: Topic, kind: TableKind, suffix: str = "") -> str:
    """Claim a table for the topic and return its name. The table belongs to the topic from then on.

    The name is the topic's, in lower case, with `_` for `.` and `-`, and the suffix. If another topic owns that table,
    for example a deleted one of the same name, a part of the topic's id follows. Costs a get, and a put for a new
    table. Raises INVALID_CONFIG if the topic's table is of the other kind.
    """
    plain = plain_table_name(topic.name) + suffix
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
    """The kind of a table. Raises UNKNOWN_TOPIC if no topic was archived into it. One get."""
    found = lake.get(_table_path(name))
    if found is None:
        raise PenstockError(
            ErrorCode.UNKNOWN_TOPIC, f"there is no archived table at {lake.uri(name)}: give its --output and its name"
        )
    return TableKind(json.loads(found)["kind"])


def find_plan(lake: ResultStore, table: str, number: int) -> Plan | None:
    """A stored plan, or None. One get."""
    found = lake.get(plan_path(table, number))
    return None if found is None else decode_plan(found)


def put_plan(lake: ResultStore, table: str, plan: Plan) -> Plan:
    """The plan of that number: this one, or the one that another run has put. One put, and a get in the second case."""
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
