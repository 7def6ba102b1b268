"""Delayed records as Spark's tasks read them, without Spark: each once, at its offset, as any other record."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.log.ref import Tier
from penstock_service.compaction.compact import compact
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.timers.promote import promote_partition
from penstock_service.topics.create_topic import create_topic
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.decode.decoding import decode, kafka_schema
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import ReadOptions
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.glue_jobs.decode.topic_reading import options, plan, read
from tests.glue_jobs.replay.replays import replay, rows_in
from tests.service.timers.delays import delay
from tests.support.service import SteppedClock, key_of, new_topic, patient_instance, send

SECOND_MS, MINUTE_MS, DAY_MS = 1_000, 60_000, 86_400_000
SENT_MS = 1_000  # the timestamp of each record here
DELIVERED = ["now", "soon", "later", "between", "tomorrow"]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    """Records that came at once, and after a second, twenty minutes and a day. One still waits."""
    clock.time_ms = 20 * DAY_MS
    instance = patient_instance(clock)
    new_topic(instance, retention_ms=7 * DAY_MS)
    now_ms = clock.now_ms()
    send(instance, "orders", "now")
    for number, (value, after_ms) in enumerate(
        [("tomorrow", DAY_MS), ("later", 20 * MINUTE_MS), ("soon", SECOND_MS), ("waits", 30 * DAY_MS)]
    ):
        delay(instance, "orders", now_ms + after_ms, value, number=number)
    deliver(instance, clock, SECOND_MS)
    deliver(instance, clock, 20 * MINUTE_MS)
    send(instance, "orders", "between")
    deliver(instance, clock, DAY_MS)
    return instance


def deliver(instance: Instance, clock: SteppedClock, after_ms: int) -> None:
    """Let the time pass, and promote what is due then."""
    clock.time_ms += after_ms
    promote_partition(instance, key_of(instance, "orders"), 0, 10**15)


def values(instance: Instance, read_options: ReadOptions | None = None) -> list[tuple[int, str]]:
    return [(offset, value) for _, offset, value in read(instance, plan(instance, read_options), read_options)]


def test_each_delivered_record_is_read_once_at_its_offset(instance: Instance) -> None:
    refs = refs_of(instance.stores.log, key_of(instance, "orders"), 0)
    assert {located.ref.tier for located in refs} == {Tier.ZONAL, Tier.ARCHIVE}
    assert values(instance) == [*enumerate(DELIVERED)]


def test_timestamps_are_those_that_the_sender_gave(instance: Instance) -> None:
    rows = [
        row["timestamp"]
        for slices in plan(instance)
        for records in decode(
            read_slices(instance, slices, range_bytes=1_000, fails_on_data_loss=True), kafka_schema(with_headers=False)
        )
        for row in records.to_pylist()
    ]
    assert rows == [datetime.fromtimestamp(SENT_MS / 1_000, UTC)] * len(DELIVERED)


@pytest.mark.parametrize(("after_ms", "first"), [(SECOND_MS, 1), (MINUTE_MS, 2), (21 * MINUTE_MS, 4)])
def test_read_that_starts_at_a_time_meets_what_was_delivered_since(
    instance: Instance, after_ms: int, first: int
) -> None:
    from_ms = 20 * DAY_MS + after_ms
    assert values(instance, options(startingTimestamp=from_ms)) == [*enumerate(DELIVERED)][first:]


def test_compacted_refs_are_read_as_before(instance: Instance) -> None:
    settings = CompactionSettings(age_ms_min=0, refs_min=2, ref_bytes=2_000, segment_bytes=3_000)
    for _ in range(30):
        send(instance, "orders", "more")
    assert compact(instance, "orders", 0, settings, budget_ms=20_000.0).runs
    assert values(instance) == [*enumerate([*DELIVERED, *["more"] * 30])]


def test_plan_of_delivered_records_is_read_after_they_have_moved(instance: Instance) -> None:
    planned = plan(instance)
    for _ in range(30):
        send(instance, "orders", "more")
    settings = CompactionSettings(age_ms_min=0, refs_min=2, ref_bytes=2_000, segment_bytes=3_000)
    compact(instance, "orders", 0, settings, budget_ms=20_000.0)
    assert [value for _, _, value in read(instance, planned)] == DELIVERED


def test_age_counts_from_the_delivery(instance: Instance, clock: SteppedClock) -> None:
    """Topics keep 7 days. All were sent before that, and the last one came 6.5 days ago."""
    clock.time_ms += 6 * DAY_MS + DAY_MS // 2
    retain(instance, budget_ms=20_000.0)
    assert values(instance) == [(4, "tomorrow")]


@pytest.mark.parametrize("kind", TableKind)
def test_archive_and_replay_have_each_delivered_record_once(
    instance: Instance, kind: TableKind, tmp_path: Path
) -> None:
    archived = ArchivedTopic(folder=tmp_path, kind=kind, instance=instance)
    archived.topic = "orders"
    archived.archive()
    archived.archive()
    create_topic(instance, "copy", 1, {"retention_ms": -1})
    replay(archived)
    found = [(value, timestamp_ms) for _, value, timestamp_ms, _ in rows_in(instance, "copy", 0)]
    assert found == [(value.encode(), SENT_MS) for value in DELIVERED]
