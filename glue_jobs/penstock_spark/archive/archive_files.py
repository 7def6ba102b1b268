"""Writes one group of a plan to Parquet files, one for each day. Runs on executors, as often as Spark repeats it.

Before the first file, a task puts a note that names the days. A later attempt follows that note. It skips a file that
the note names and the store has, so a finished group costs a few requests. Retention may remove records between two
attempts. The later attempt then has fewer records, never different ones, and a file that exists stays as it is.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import ARCHIVE_PARTITION_VALUES_MAX
from penstock_core.records.undecodable import raise_undecodable
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_plan import Group, OffsetSpan, Plan
from penstock_spark.archive.day_files import DayFile, DayFiles, data_path
from penstock_spark.archive.registered_schemas import Registries, header_framer, value_reader
from penstock_spark.archive.typed_columns import ARCHIVE_SCHEMA, REGISTERED, Typing
from penstock_spark.archive.typing_values import ValueTyper, in_parts
from penstock_spark.decode.decoding import decode
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import RANGE_BYTES
from penstock_spark.plan.planning import OffsetRange, plan_slices
from penstock_spark.plan.slices import Slice
from penstock_spark.result_store import ResultStore

_ALL_BYTES = 2**63  # no bound: the plan has already cut the group


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file in the store."""

    path: str
    records: int
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedGroup:
    """A group in the store. Retention removed the `expired` spans between the plan and the read.

    The `skipped` spans are undecodable batches: their records are not in the files, save some at a batch's beginning.
    `unfit` values did not fit the plan's schema: their bytes are in the column `_raw`.
    """

    files: tuple[ArchivedFile, ...]
    expired: tuple[OffsetSpan, ...]
    skipped: tuple[OffsetSpan, ...] = ()
    unfit: int = 0


def plan_path(table: str, number: int) -> str:
    """The path of a plan."""
    return f"{table}/_penstock/plans/{number:012}.json"


def note_path(table: str, plan_number: int, group_number: int) -> str:
    """The path of the note that names a group's days."""
    return f"{table}/_penstock/plans/{plan_number:012}/{group_number:05}.json"


def file_path(table: str, plan_number: int, group_number: int, day: str) -> str:
    """The path of the file with a group's records of one day, as `DayFile` has it."""
    return data_path(table, day, f"{plan_number:012}-{group_number:05}")


def archive_group(
    instance: Instance,
    lake: ResultStore,
    table: str,
    plan: Plan,
    group: Group,
    *,
    skips_undecodable: bool = False,
    registries: Registries | None = None,
) -> ArchivedGroup:
    """Put the missing objects of a group: its note, and a file for each day. Reads no segment if nothing is missing.

    Raises the error of an undecodable batch, unless it skips them. `registries` opens that of the plan's schema.

    Uses local disk for the files, and memory for about 64 MiB of records besides the memory that reading takes.
    """
    path = note_path(table, plan.number, group.number)
    note = lake.get(path)
    if note is not None:
        done = _archived(lake, table, plan, group, note)
        if done is not None:
            return done
    with TemporaryDirectory(prefix="penstock-archive-") as folder:
        skipped: list[OffsetSpan] | None = [] if skips_undecodable else None
        typer = None if plan.typing is None else plan_typer(plan.typing, lake, table, registries)
        files, expired, unfit = _write(instance, plan, group, Path(folder), skipped, typer)
        days = {each.day: each.records for each in files}
        found = {"days": days, "expired": _triples(expired), "skipped": _triples(skipped or ()), "unfit": unfit}
        if not lake.put_new(path, json.dumps(found).encode()):
            note = lake.get(path)
        for each in files:
            lake.put_new(file_path(table, plan.number, group.number, each.day), each.path)
    return ArchivedGroup(
        files=_files(lake, table, plan, group, _days(note) if note is not None else days),
        expired=tuple(expired),
        skipped=tuple(skipped or ()) if note is None else _spans(note, "skipped"),
        unfit=unfit if note is None else _unfit(note),
    )


def try_partitions(
    instance: Instance, lake: ResultStore, table: str, plan: Plan, registries: Registries | None
) -> None:
    """Write the plan's first group to local disk, and nowhere else.

    Raises INVALID_CONFIG for more values of the chosen columns than `ARCHIVE_PARTITION_VALUES_MAX`. Call it before the
    plan is put: no later run could do otherwise than such a plan says.
    """
    if plan.typing is not None and plan.groups:
        typer = plan_typer(plan.typing, lake, table, registries)
        with TemporaryDirectory(prefix="penstock-archive-") as folder:
            _write(instance, plan, plan.groups[0], Path(folder), [], typer, ARCHIVE_PARTITION_VALUES_MAX)


def _archived(lake: ResultStore, table: str, plan: Plan, group: Group, note: bytes) -> ArchivedGroup | None:
    """The group as an earlier attempt left it; None if that attempt did not finish."""
    days = _days(note)
    files = _files(lake, table, plan, group, days)
    if len(files) < len(days):
        return None
    return ArchivedGroup(
        files=files, expired=_spans(note, "expired"), skipped=_spans(note, "skipped"), unfit=_unfit(note)
    )


def _files(lake: ResultStore, table: str, plan: Plan, group: Group, days: dict[str, int]) -> tuple[ArchivedFile, ...]:
    """The note's files that exist. The records of the other files expired before an attempt put them."""
    paths = {file_path(table, plan.number, group.number, day): records for day, records in days.items()}
    found = [(path, records, lake.size(path)) for path, records in paths.items()]
    return tuple(
        ArchivedFile(path=path, records=records, file_bytes=size) for path, records, size in found if size is not None
    )


def plan_typer(typing: Typing, lake: ResultStore | None, table: str, registries: Registries | None) -> ValueTyper:
    """The typer of values by the schema of a plan, a rebuild or a read. Makes no call."""
    if typing.kind != REGISTERED:
        return ValueTyper(typing)
    assert registries is not None
    framer = header_framer(typing.schema, registries)
    return ValueTyper(typing, value_reader(typing.schema, lake, table, registries), framer)


def _write(
    instance: Instance,
    plan: Plan,
    group: Group,
    folder: Path,
    skipped: list[OffsetSpan] | None,
    typer: ValueTyper | None,
    values_max: int | None = None,
) -> tuple[Sequence[DayFile], Sequence[OffsetSpan], int]:
    """The group's records in local files, the spans that retention removed first, and the number of unfit values.

    Notes undecodable batches in `skipped`; raises their errors if it is None. Each further turn needs newly removed
    offsets, so the loop ends.
    """
    spans, expired = _cut(instance, plan, group.spans)

    def skip(error: PenstockError) -> None:
        assert skipped is not None
        start, end = error.facts["base_offset"], error.facts["next_offset"]
        skipped.append(OffsetSpan(partition=error.facts["partition"], start_offset=start, end_offset=end))

    while True:
        if typer is not None:
            typer.unfit = 0  # the turn before counted, too
        files = DayFiles(folder, plan.typing, values_max=values_max)
        if skipped:
            skipped.clear()  # the turn before noted them too
        try:
            stored = read_slices(
                instance, _slices(instance, plan, spans), range_bytes=RANGE_BYTES, fails_on_data_loss=True
            )
            for batch in in_parts(decode(stored, ARCHIVE_SCHEMA, raise_undecodable if skipped is None else skip)):
                files.add(batch if typer is None else typer.add(batch))
            return files.close(), expired, 0 if typer is None else typer.unfit
        except PenstockError as error:
            files.abandon()
            spans, more = _cut(instance, plan, spans)
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not more:
                raise
            expired = [*expired, *more]


def _cut(instance: Instance, plan: Plan, spans: Sequence[OffsetSpan]) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
    """The spans that exist, and those that are removed. One read for each 100 partitions."""
    heads = instance.stores.log.heads([*{_key(plan, each): None for each in spans}])
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


def _slices(instance: Instance, plan: Plan, spans: Sequence[OffsetSpan]) -> list[Slice]:
    heads = instance.stores.log.heads([*{_key(plan, each): None for each in spans}])
    ranges = [
        OffsetRange(
            topic=plan.topic, key=key, head=heads[key], start_offset=each.start_offset, end_offset=each.end_offset
        )
        for each in spans
        if (key := _key(plan, each)) in heads
    ]
    return [each for group in plan_slices(instance, ranges, partition_bytes=_ALL_BYTES) for each in group]


def _key(plan: Plan, span: OffsetSpan) -> PartitionKey:
    return PartitionKey(TopicId(plan.topic_id), Partition(span.partition))


def _days(note: bytes) -> dict[str, int]:
    return dict(json.loads(note)["days"])


def _unfit(note: bytes) -> int:
    return int(json.loads(note).get("unfit", 0))  # an earlier release typed no values


def _spans(note: bytes, name: str) -> tuple[OffsetSpan, ...]:
    found = json.loads(note).get(name, ())  # an earlier release noted no skipped ones
    return tuple(OffsetSpan(partition=p, start_offset=s, end_offset=e) for p, s, e in found)


def _triples(spans: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.partition, each.start_offset, each.end_offset] for each in spans]
