"""Archives a topic, commit after commit, up to the end that it had at the start. Runs on the driver.

It needs no lease: two runs at once follow the same plans (archive_plan.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.limits import ARCHIVE_PARTITION_VALUES_MAX
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance
from penstock_spark.archive.archive_files import ArchivedGroup
from penstock_spark.archive.archive_plan import OffsetSpan, Plan, high_watermarks, make_plan
from penstock_spark.archive.archive_table import ArchiveTable, find_plan, put_plan
from penstock_spark.archive.iceberg_table import IcebergTable
from penstock_spark.archive.latest_rows import LatestRunner
from penstock_spark.archive.merging_files import MergeRunner
from penstock_spark.archive.orphan_files import remove_orphans
from penstock_spark.archive.rebuilding import RebuildRunner
from penstock_spark.archive.typed_columns import Typing
from penstock_spark.result_store import ResultStore

_SKIPPED_NAMED_MAX = 20  # undecodable batches in one line

GroupRunner = Callable[[str, Plan], Sequence[ArchivedGroup]]  # archives the groups of a table's plan
EventLogger = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The work before the first new plan of a run.

    `ready` readies the table, and tells how to type values. `check` raises for a plan of a table that may not be put: a
    plan that was put has to be carried out.
    """

    ready: Callable[[], Typing | None]
    check: Callable[[str, Plan], object]


NOTHING_TO_PREPARE = Preparation(ready=lambda: None, check=lambda _table, _plan: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bounds of the work of one task and of one commit, about: bytes of segments."""

    group_bytes: int
    commit_bytes: int


@dataclass(slots=True, kw_only=True)
class ArchiveResult:
    """The result of a run for one topic. Retention removed `expired_offsets` offsets before they were archived.

    `skipped_batches` could not be decoded; they cover `skipped_offsets`. `unfit_records` did not fit the schema.
    """

    topic: str
    table: str
    commits: int = 0
    files: int = 0
    records: int = 0
    stored_bytes: int = 0
    file_bytes: int = 0
    expired_offsets: int = 0
    skipped_batches: int = 0
    skipped_offsets: int = 0
    unfit_records: int = 0

    def facts(self) -> dict[str, Any]:
        """The facts for the job's result line."""
        return {name: getattr(self, name) for name in self.__slots__}


def archive_topic(
    instance: Instance,
    lake: ResultStore,
    topic: Topic,
    table: ArchiveTable,
    run_groups: GroupRunner,
    sizes: Sizes,
    log_event: EventLogger,
    preparation: Preparation = NOTHING_TO_PREPARE,
) -> ArchiveResult:
    """Finish the work of earlier runs, then archive up to the topic's present end.

    The preparation comes once, when no earlier plan is left: a plan types values for the columns that the table had
    then, so a rebuild has to come behind it.

    Each turn commits one plan, which advances the table, so the loop ends at that end. Raises the errors of
    `make_plan`, of the tasks and of the commit. Earlier commits stay.
    """
    until = high_watermarks(instance, topic)
    total = ArchiveResult(topic=topic.name, table=table.name)
    typing, is_ready = None, False
    while True:
        committed = table.committed()
        plan = find_plan(lake, table.name, committed.number + 1)
        if plan is None:
            is_first = not is_ready
            if is_first:
                typing, is_ready = preparation.ready(), True
            made = make_plan(
                instance, topic, committed, until, group_bytes=sizes.group_bytes, commit_bytes=sizes.commit_bytes
            )
            if made is None:
                return total
            made = replace(made, typing=typing)
            if is_first:
                preparation.check(table.name, made)
            plan = put_plan(lake, table.name, made)
        groups = run_groups(table.name, plan)
        table.commit(plan, [file for each in groups for file in each.files])
        _count(total, plan, groups)
        _tell(log_event, topic, table.name, plan, groups)
        left = sum(max(0, end - plan.next_offsets.get(partition, 0)) for partition, end in until.items())
        log_event("committed", topic=topic.name, commit=plan.number, records=total.records, offsets_left=left)


def rebuild_table(
    table: IcebergTable,
    schema: tuple[str, str],
    run_rebuild: RebuildRunner,
    log_event: EventLogger,
    partition_by: Sequence[str] | None = None,
) -> None:
    """Type all rows of the table anew. Does nothing to a table without rows. Raises as the table's methods.

    No plan may be left: its files would have the columns of before.
    """
    rebuild = table.plan_rebuild(*schema, partition_by)
    if rebuild is None:
        return
    rebuilt = run_rebuild(rebuild)
    files = [file for each in rebuilt for file in each.files]
    table.commit_rebuild(rebuild, files)
    log_event(
        "rebuilt",
        table=table.name,
        rebuild=rebuild.rebuild_id,
        files=len(files),
        records=sum(each.records for each in files),
        unfit=sum(each.unfit for each in rebuilt),
    )


def merge_latest(
    table: IcebergTable,
    latest: IcebergTable,
    topic: Topic,
    typing: Typing | None,
    run_latest: LatestRunner,
    log_event: EventLogger,
) -> None:
    """Bring the table of a topic's latest rows to the present snapshot of the topic's table. Raises as its methods."""
    work = latest.plan_latest(table, topic.head_count, typing)
    if work is None:
        return
    files = [file for each in run_latest(work) for file in each]
    latest.commit_latest(work, files)
    log_event("latest", topic=topic.name, table=latest.name, files=len(files), rows=sum(each.records for each in files))


def merge_files(table: IcebergTable, run_merge: MergeRunner, log_event: EventLogger) -> None:
    """Join small files of the table, in one commit. Does nothing to a table with few of them. Raises as its methods."""
    merge = table.plan_merge()
    if merge is None:
        return
    merged = [each for each in run_merge(merge) if each.files]
    if merged:
        table.commit_merge(merge, merged)
    before, after = (sum(len(each.replaced) for each in merged), sum(len(each.files) for each in merged))
    log_event("merged", table=table.name, files_before=before, files_after=after)


def remove_table_orphans(lake: ResultStore, table: IcebergTable, log_event: EventLogger) -> None:
    """Remove files that no snapshot has and no run may commit (orphan_files.py). Raises as its functions."""
    kept = table.kept_files()
    if kept is None:
        return
    removed = remove_orphans(lake, kept)
    log_event("orphans", table=table.name, files=removed.files, bytes=removed.file_bytes)


def _tell(log_event: EventLogger, topic: Topic, table: str, plan: Plan, groups: Sequence[ArchivedGroup]) -> None:
    """Log what a commit lacks, and what is wrong with it."""
    expired = [*plan.expired, *(span for each in groups for span in each.expired)]
    if expired:
        log_event("expired", topic=topic.name, table=table, offsets=[_named(each) for each in expired])
    skipped = [span for each in groups for span in each.skipped]
    if skipped:
        named = [_named(each) for each in skipped[:_SKIPPED_NAMED_MAX]]
        log_event("skipped", topic=topic.name, table=table, batches=len(skipped), first=named)
    unfit = sum(each.unfit for each in groups)
    if unfit:
        log_event("unfit", topic=topic.name, table=table, commit=plan.number, records=unfit)
    if plan.typing is not None and plan.typing.partition_by:
        most = max((len(each.files) for each in groups), default=0)
        if most > ARCHIVE_PARTITION_VALUES_MAX:
            log_event("many_files", topic=topic.name, of_a_task=most, partition_by=plan.typing.partition_by)


def _count(total: ArchiveResult, plan: Plan, groups: Sequence[ArchivedGroup]) -> None:
    files = [file for each in groups for file in each.files]
    expired = [*plan.expired, *(span for each in groups for span in each.expired)]
    total.commits += 1
    total.files += len(files)
    total.records += sum(each.records for each in files)
    total.file_bytes += sum(each.file_bytes for each in files)
    total.stored_bytes += sum(each.stored_bytes for each in plan.groups)
    total.expired_offsets += sum(each.end_offset - each.start_offset for each in expired)
    skipped = [span for each in groups for span in each.skipped]
    total.unfit_records += sum(each.unfit for each in groups)
    total.skipped_batches += len(skipped)
    total.skipped_offsets += sum(each.end_offset - each.start_offset for each in skipped)


def _named(span: OffsetSpan) -> dict[str, int]:
    return {"partition": span.partition, "start_offset": span.start_offset, "end_offset": span.end_offset}
