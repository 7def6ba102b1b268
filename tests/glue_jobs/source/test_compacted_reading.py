"""Spark's planner and readers over a log that is merged, cleaned, truncated and left to expire, without Spark itself.

They agree with a model, also if the log changes between planning and reading. A replay of the log's archive agrees too.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.compaction.merging import CompactionSettings
from penstock_service.topics.create_topic import create_topic
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.glue_jobs.decode.topic_reading import Plan, options, plan
from tests.glue_jobs.replay.replays import replay, rows_in
from tests.support.compacted_log import DAY_MS, STEPS, CompactedLog, Found, Step

POLICIES = [
    "compact,delete",
    *(pytest.param(policy, marks=pytest.mark.minutes) for policy in ("delete", "compact")),
]
SMALL = CompactionSettings(age_ms_min=0, refs_min=2, ref_bytes=2_000, segment_bytes=3_000, dirty_share_min=0.0)


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=st.lists(STEPS, min_size=3, max_size=10), data=st.data())
@settings(max_examples=15)
def test_spark_read_agrees_with_a_model_from_any_offset(policy: str, steps: list[Step], data: st.DataObject) -> None:
    log = CompactedLog(policy=policy, settings=SMALL)
    for step in steps:
        log.take(step)
    for start in every_few_offsets(log, data):
        log.check(read(log, plan_from(log, start, data)), start, len(log.appended))


@pytest.mark.parametrize("policy", POLICIES)
@given(before=st.lists(STEPS, min_size=2, max_size=6), after=st.lists(STEPS, min_size=1, max_size=4), data=st.data())
@settings(max_examples=15)
def test_planned_read_finds_the_model_when_the_log_is_compacted_meanwhile(
    policy: str, before: list[Step], after: list[Step], data: st.DataObject
) -> None:
    """A read of several days may miss the records that cleaning, truncation and retention remove meanwhile, and no
    others."""
    log = CompactedLog(policy=policy, settings=SMALL)
    for step in before:
        log.take(step)
    start, end = log.head.log_start_offset, len(log.appended)
    planned = plan_from(log, start, data)
    for step in [*after, ("compact", 100), ("wait", 2 * DAY_MS), ("retain", None)]:
        log.take(step)
    found = read(log, planned)
    assert [each[0] for each in found] == sorted({each[0] for each in found})
    assert set(found) <= set(log.appended[start:end])
    kept = {each for each in log.needed() if log.head.log_start_offset <= each[0] < end}
    assert kept <= set(found)


@pytest.mark.parametrize("policy", POLICIES)
@given(before=st.lists(STEPS, min_size=2, max_size=5), after=st.lists(STEPS, max_size=2))
@settings(max_examples=10)
def test_archive_is_replayed_as_it_was_when_the_log_is_compacted_since(
    policy: str, before: list[Step], after: list[Step]
) -> None:
    log = CompactedLog(policy=policy, settings=SMALL)
    for step in before:
        log.take(step)
    start, end = log.head.log_start_offset, len(log.appended)
    with TemporaryDirectory() as folder:
        archived = ArchivedTopic(folder=Path(folder), kind=TableKind.PARQUET, instance=log.instance)
        archived.topic = log.topic
        found = read(log, plan(log.instance, options(startingOffsets=json.dumps({log.topic: {"0": start}}))))
        log.check(found, start, end)
        archived.archive()
        for step in after:
            log.take(step)
        create_topic(log.instance, "copy", 1, {"retention_ms": -1})
        replay(archived)
    assert rows_in(log.instance, "copy", 0) == [each[1:] for each in found]


def every_few_offsets(log: CompactedLog, data: st.DataObject) -> range:
    """A few dozen offsets at most, from near the log start on."""
    start = log.head.log_start_offset
    stride = max(1, (len(log.appended) - start) // 20)
    return range(start + data.draw(st.integers(0, stride - 1), label="first"), len(log.appended), stride)


def plan_from(log: CompactedLog, start: int, data: st.DataObject) -> Plan:
    """A plan of all offsets from `start` on, in tasks of some size."""
    task_bytes = data.draw(st.sampled_from([1, 700, 100_000]), label="bytes of a task")
    return plan(log.instance, options(startingOffsets=json.dumps({log.topic: {"0": start}}), partitionBytes=task_bytes))


def read(log: CompactedLog, planned: Plan) -> list[Found]:
    """All records, task by task."""
    found: list[Found] = []
    for slices in planned:
        stored = read_slices(log.instance, slices, range_bytes=500, fails_on_data_loss=False)
        for records in decode(stored, kafka_schema(with_headers=True)):
            for row in records.to_pylist():
                headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
                time_ms = round(row["timestamp"].timestamp() * 1_000)
                found.append((row["offset"], row["key"], row["value"], time_ms, headers))
    return found
