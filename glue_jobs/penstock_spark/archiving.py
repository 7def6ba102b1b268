"""Topics to tables, commit after commit, until what was there at the start is archived. Runs on the driver.

Needs no lease: whatever two runs do at once, both go by the same plans (archive_plan.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_broker.broker import Broker
from penstock_core.topic import Topic
from penstock_spark.archive_files import ArchivedGroup
from penstock_spark.archive_plan import OffsetSpan, Plan, high_watermarks, make_plan
from penstock_spark.archive_table import ArchiveTable, find_plan, put_plan
from penstock_spark.result_store import ResultStore

Spread = Callable[[str, Plan], Sequence[ArchivedGroup]]  # a table's plan to what became of its groups
Tell = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is archived by one task, and by one commit: bytes of segments, about."""

    group_bytes: int
    commit_bytes: int


@dataclass(slots=True, kw_only=True)
class TopicArchived:
    """What a run has done for one topic. Retention removed `expired_offsets` offsets before they were archived."""

    topic: str
    table: str
    commits: int = 0
    files: int = 0
    records: int = 0
    stored_bytes: int = 0
    file_bytes: int = 0
    expired_offsets: int = 0

    def facts(self) -> dict[str, Any]:
        """For the job's result."""
        return {name: getattr(self, name) for name in self.__slots__}


def archive_topic(
    broker: Broker, lake: ResultStore, topic: Topic, table: ArchiveTable, spread: Spread, sizes: Sizes, tell: Tell
) -> TopicArchived:
    """Finishes what earlier runs have begun, then archives up to where the topic ends now.

    Raises what `make_plan`, the spread tasks and the commit raise; what is committed by then stays.
    """
    until = high_watermarks(broker, topic)
    total = TopicArchived(topic=topic.name, table=table.name)
    while True:
        committed = table.committed()
        plan = find_plan(lake, table.name, committed.number + 1)
        if plan is None:
            made = make_plan(
                broker, topic, committed, until, group_bytes=sizes.group_bytes, commit_bytes=sizes.commit_bytes
            )
            if made is None:
                return total
            plan = put_plan(lake, table.name, made)
        groups = spread(table.name, plan)
        table.commit(plan, [file for each in groups for file in each.files])
        _count(total, plan, groups)
        expired = [*plan.expired, *(span for each in groups for span in each.expired)]
        if expired:
            tell("expired", topic=topic.name, table=table.name, offsets=[_named(each) for each in expired])
        left = sum(max(0, end - plan.next_offsets.get(partition, 0)) for partition, end in until.items())
        tell("committed", topic=topic.name, commit=plan.number, records=total.records, offsets_left=left)


def _count(total: TopicArchived, plan: Plan, groups: Sequence[ArchivedGroup]) -> None:
    files = [file for each in groups for file in each.files]
    expired = [*plan.expired, *(span for each in groups for span in each.expired)]
    total.commits += 1
    total.files += len(files)
    total.records += sum(each.records for each in files)
    total.file_bytes += sum(each.file_bytes for each in files)
    total.stored_bytes += sum(each.stored_bytes for each in plan.groups)
    total.expired_offsets += sum(each.end_offset - each.start_offset for each in expired)


def _named(span: OffsetSpan) -> dict[str, int]:
    return {"partition": span.partition, "start_offset": span.start_offset, "end_offset": span.end_offset}
