"""Delayed records as Spark reads them from an emulator: a batch, a stream, and a sweep while some of them wait."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock_spark
from penstock_core.ids import Partition, SegmentId
from penstock_core.log.timer import scheduled_id
from penstock_core.storage.keys import parse_segment_key
from penstock_service.adapters.aws import Storage, format_zones
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.timers.promote import promote_partition
from penstock_service.timers.scheduled import cancel_scheduled
from penstock_spark.scripts import sweep
from tests.glue_jobs.conftest import RunScript
from tests.service.timers.delays import delay, place
from tests.support.service import SteppedClock, another_instance, key_of, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND_MS, MINUTE_MS = 1_000, 60_000
ENDS_S_MAX = 120
EXPECTED = [(0, "now"), (1, "soon"), (2, "later")]


@pytest.fixture
def delayed(instance: Instance) -> Instance:
    """The topic orders: a record at once, one after a second, one after twenty minutes, one that waits, one cancelled.

    A share group has locked some of them.
    """
    new_topic(instance)
    now_ms = instance.clock.now_ms()
    send(instance, "orders", "now")
    for number, (value, after_ms) in enumerate(
        [("soon", SECOND_MS), ("later", 20 * MINUTE_MS), ("waits", 60 * MINUTE_MS), ("never", 60 * MINUTE_MS)]
    ):
        delay(instance, "orders", now_ms + after_ms, value, number=number)
    cancel_scheduled(instance, "orders", scheduled_id(Partition(0), place(now_ms + 60 * MINUTE_MS, 3)))
    clock = SteppedClock()
    clock.time_ms = now_ms + 21.0 * MINUTE_MS
    done = promote_partition(another_instance(instance, clock=clock), key_of(instance, "orders"), 0, 10**15)
    assert done.timers == 2
    put_share_group(instance, "workers", ["orders"], {})
    acquire(instance, "workers", AcquireWish(records_max=2, bytes_max=1_000))
    return instance


def archived(instance: Instance) -> set[SegmentId]:
    store = instance.stores.archive
    keys = store.list_keys("", None).keys
    return {found for key in keys if (found := parse_segment_key(key, store.layout)) is not None}


def rows_in(frame: "DataFrame") -> list[tuple[int, str]]:
    return [(row[0], row[1]) for row in frame.selectExpr("offset", "cast(value as string)").orderBy("offset").collect()]


@pytest.mark.usefixtures("delayed")
def test_batch_has_each_delivered_record_once(spark: "SparkSession", storage_options: dict[str, str]) -> None:
    for option in ("subscribe", "subscribePattern"):
        assert rows_in(penstock_spark.read(spark, **{option: "orders"}, **storage_options)) == EXPECTED


@pytest.mark.minutes
@pytest.mark.usefixtures("delayed")
def test_stream_has_each_delivered_record_once(
    spark: "SparkSession", storage_options: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")
    penstock_spark.register(spark)
    found: list[tuple[int, str]] = []
    options = {"subscribe": "orders", "startingOffsets": "earliest", **storage_options}
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, _: found.extend(rows_in(frame)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(ENDS_S_MAX)
    finally:
        query.stop()
    assert found == EXPECTED


@pytest.mark.minutes
def test_sweep_keeps_the_segments_of_delivered_and_of_waiting_records(
    delayed: Instance, storage: Storage, run_script: RunScript, spark: "SparkSession", storage_options: dict[str, str]
) -> None:
    before = archived(delayed)
    assert len(before) == 4
    result = run_script(
        sweep.main,
        "--topics-table", storage.topics_table, "--log-table", storage.log_table,
        "--groups-table", storage.groups_table, "--repair-queue-url", str(storage.repair_queue_url),
        "--archive", storage.archive, "--zones", format_zones(storage.zones), "--grace-ms", "0",
    )[-1]  # fmt: skip
    assert (result["swept"]["deleted"], result["failures"]) == (1, 0)
    assert len(before - archived(delayed)) == 1  # that of the record that was cancelled
    clock = SteppedClock()
    clock.time_ms = delayed.clock.now_ms() + 61.0 * MINUTE_MS
    assert promote_partition(another_instance(delayed, clock=clock), key_of(delayed, "orders"), 0, 10**15).timers == 1
    assert rows_in(penstock_spark.read(spark, subscribe="orders", **storage_options)) == [*EXPECTED, (3, "waits")]
