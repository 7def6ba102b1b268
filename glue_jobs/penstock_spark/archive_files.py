"""One group of a plan to Parquet files, one for each day. Runs on executors, as often as it has to.

Before the first file a note is put that names the days. An attempt that finds a note goes by it: what the note names
and the store has is not written again, so a group that was done costs a few requests. Retention may remove records
between two attempts; a later one then has fewer records, never others, and a file that is there stays as it is.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicId
from penstock_core.keys import PartitionKey
from penstock_spark.archive_plan import Group, OffsetSpan, Plan
from penstock_spark.archive_schema import ARCHIVE_SCHEMA
from penstock_spark.day_files import DayFile, DayFiles
from penstock_spark.decoding import decode
from penstock_spark.options import RANGE_BYTES
from penstock_spark.planning import OffsetRange, plan_slices
from penstock_spark.reading import read_slices
from penstock_spark.result_store import ResultStore
from penstock_spark.slices import Slice

_ALL_BYTES = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file that is in the store."""

    path: str
    records: int
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedGroup:
    """A group that is in the store. `expired` was removed after it had been planned, and before it was read."""

    files: tuple[ArchivedFile, ...]
    expired: tuple[OffsetSpan, ...]


def plan_path(table: str, number: int) -> str:
    """Where a plan lies."""
    return f"{table}/_penstock/plans/{number:012}.json"


def note_path(table: str, plan_number: int, group_number: int) -> str:
    """Where the note of a group's days lies."""
    return f"{table}/_penstock/plans/{plan_number:012}/{group_number:05}.json"


def file_path(table: str, plan_number: int, group_number: int, day: str) -> str:
    """Where a group's records of one day lie."""
    return f"{table}/data/day={day}/{plan_number:012}-{group_number:05}.parquet"


def archive_group(broker: Broker, lake: ResultStore, table: str, plan: Plan, group: Group) -> ArchivedGroup:
    """Puts what is not there yet: a note, and a file for each day. Reads the group's segments unless all is there.

    Uses local disk for the files, and memory for about 64 MiB of records beside what reading takes.
    """
    path = note_path(table, plan.number, group.number)
    note = lake.get(path)
    if note is not None:
        done = _archived(lake, table, plan, group, note)
        if done is not None:
            return done
    with TemporaryDirectory(prefix="penstock-archive-") as folder:
        files, expired = _write(broker, plan, group, Path(folder))
        days = {each.day: each.records for each in files}
        if not lake.put_new(path, json.dumps({"days": days, "expired": _triples(expired)}).encode()):
            note = lake.get(path)
        for each in files:
            lake.put_new(file_path(table, plan.number, group.number, each.day), each.path)
    return ArchivedGroup(
        files=_files(lake, table, plan, group, _days(note) if note is not None else days), expired=tuple(expired)
    )


def _archived(lake: ResultStore, table: str, plan: Plan, group: Group, note: bytes) -> ArchivedGroup | None:
    """The group as an earlier attempt has left it, if that was all of it."""
    days = _days(note)
    files = _files(lake, table, plan, group, days)
    expired = tuple(OffsetSpan(partition=p, start_offset=s, end_offset=e) for p, s, e in json.loads(note)["expired"])
    return ArchivedGroup(files=files, expired=expired) if len(files) == len(days) else None


def _files(lake: ResultStore, table: str, plan: Plan, group: Group, days: dict[str, int]) -> tuple[ArchivedFile, ...]:
    """Of the note's files those that are there; the others' records expired before anybody put them."""
    paths = {file_path(table, plan.number, group.number, day): records for day, records in days.items()}
    found = [(path, records, lake.size(path)) for path, records in paths.items()]
    return tuple(
        ArchivedFile(path=path, records=records, file_bytes=size) for path, records, size in found if size is not None
    )


def _write(broker: Broker, plan: Plan, group: Group, folder: Path) -> tuple[Sequence[DayFile], Sequence[OffsetSpan]]:
    """The group's records in local files, and what of it retention was faster with."""
    spans, expired = _cut(broker, plan, group.spans)
    while True:
        files = DayFiles(folder)
        try:
            stored = read_slices(broker, _slices(broker, plan, spans), range_bytes=RANGE_BYTES, fails_on_data_loss=True)
            for batch in decode(stored, ARCHIVE_SCHEMA):
                files.add(batch)
            return files.close(), expired
        except PenstockError as error:
            files.abandon()
            spans, more = _cut(broker, plan, spans)
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not more:
                raise
            expired = [*expired, *more]


def _cut(broker: Broker, plan: Plan, spans: Sequence[OffsetSpan]) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
    """What is there of the spans, and what is removed. One read for 100 partitions."""
    heads = broker.log.heads([*{_key(plan, each): None for each in spans}])
    there: list[OffsetSpan] = []
    removed: list[OffsetSpan] = []
    for each in spans:
        head = heads.get(_key(plan, each))
        log_start = each.end_offset if head is None else head.log_start_offset
        middle = min(max(log_start, each.start_offset), each.end_offset)
        for kept, start, end in ((removed, each.start_offset, middle), (there, middle, each.end_offset)):
            if start < end:
                kept.append(OffsetSpan(partition=each.partition, start_offset=start, end_offset=end))
    return there, removed


def _slices(broker: Broker, plan: Plan, spans: Sequence[OffsetSpan]) -> list[Slice]:
    heads = broker.log.heads([*{_key(plan, each): None for each in spans}])
    ranges = [
        OffsetRange(
            topic=plan.topic, key=key, head=heads[key], start_offset=each.start_offset, end_offset=each.end_offset
        )
        for each in spans
        if (key := _key(plan, each)) in heads
    ]
    return [each for group in plan_slices(broker, ranges, partition_bytes=_ALL_BYTES) for each in group]


def _key(plan: Plan, span: OffsetSpan) -> PartitionKey:
    return PartitionKey(TopicId(plan.topic_id), Partition(span.partition))


def _days(note: bytes) -> dict[str, int]:
    return dict(json.loads(note)["days"])


def _triples(spans: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.partition, each.start_offset, each.end_offset] for each in spans]
