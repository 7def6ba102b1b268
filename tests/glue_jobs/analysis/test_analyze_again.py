"""The job `analyze` when it runs again: it goes on, and counts nothing twice."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic, truncate
from penstock_spark.analysis.measure import HOUR_MS
from tests.support.service import new_topic

if TYPE_CHECKING:
    pass
from tests.glue_jobs.analysis.sent_records import RunJob, SentRecord, hour_ago, send, skewed, stored


@pytest.mark.minutes
def test_next_run_goes_on_and_counts_nothing_twice(instance: Instance, run_job: RunJob, tmp_path: Path) -> None:
    records = skewed(instance)
    send(instance, records)
    first = run_job()
    before = stored(tmp_path / "out")
    assert first["complete_to"] == _hour_text(instance, 1)

    late = SentRecord("orders", 2, hour_ago(instance, 1) + 5, b"late", b"of the hour that may still get some")
    too_late = SentRecord("orders", 2, hour_ago(instance, 3), b"too late", b"of an hour that is complete")
    send(instance, [late, too_late])
    second = run_job()

    assert second["records"] == 1
    after = stored(tmp_path / "out")
    assert after.keys() - before.keys() == {("orders", 2, hour_ago(instance, 1))}
    assert {key: after[key] for key in before} == before
    assert run_job("--from", "earliest")["records"] == len(records) + 2  # an operator counts all records again
    assert stored(tmp_path / "out").keys() - after.keys() == {("orders", 2, hour_ago(instance, 3))}


@pytest.mark.minutes
def test_hour_that_is_counted_again_keeps_what_retention_has_removed_since(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    records = skewed(instance)
    for each in range(0, len(records), 100):
        send(instance, records[each : each + 100])
    run_job()
    before = stored(tmp_path / "out")
    truncate(instance, "orders", {1: 100})
    delete_topic(instance, "telemetry")
    run_job("--from", "earliest")
    assert stored(tmp_path / "out") == before


def test_record_of_a_clock_that_is_ahead_waits_for_its_hour_and_hides_nothing(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    new_topic(instance, "orders")
    ahead = SentRecord("orders", 0, instance.clock.now_ms() + 30 * HOUR_MS, b"k", b"from tomorrow")
    usual = SentRecord("orders", 0, hour_ago(instance, 2), b"k", b"behind it in the log")
    send(instance, [ahead])
    send(instance, [usual])
    assert run_job("--from", _hour_text(instance, 2), "--to", _hour_text(instance, 1))["records"] == 1
    assert stored(tmp_path / "out").keys() == {("orders", 0, usual.timestamp_ms)}


def _hour_text(instance: Instance, hours: int) -> str:
    from penstock_spark.analysis.hourly import hour_text

    return hour_text(hour_ago(instance, hours))
