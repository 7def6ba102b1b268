"""The job `analyze` on real storage: its numbers agree with the records that the test produced."""

import io
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from localstack.clients import client
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import segment_time_ms
from penstock_core.records.record_batch import Compression
from penstock_service.adapters.aws import Storage
from penstock_service.compaction.compact import compact
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import truncate
from penstock_service.topics.create_topic import create_topic
from penstock_spark.analysis.measure import HOUR_MS
from penstock_spark.scripts import analyze
from tests.support.service import key_of, new_topic, refs_of

if TYPE_CHECKING:
    pass
from tests.glue_jobs.analysis.sent_records import RunJob, SentRecord, hour_ago, send, skewed, stored


def model(records: Sequence[SentRecord]) -> dict[tuple[str, int, int], list[SentRecord]]:
    """The records by topic, partition and hour."""
    found = defaultdict(list)
    for each in records:
        found[each.topic, each.partition, each.timestamp_ms // HOUR_MS * HOUR_MS].append(each)
    return found


def nearest_rank(values: Sequence[int], percent: int) -> int:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def check_row(row: dict[str, Any], records: Sequence[SentRecord]) -> None:
    sizes = [len(each.key or b"") + len(each.value or b"") for each in records]
    keys = Counter(each.key for each in records if each.key is not None)
    assert (row["records"], row["bytes"]) == (len(records), sum(sizes))
    assert row["key_bytes"] == sum(len(each.key or b"") for each in records)
    assert row["value_bytes"] == sum(len(each.value or b"") for each in records)
    assert row["null_keys"] == sum(each.key is None for each in records)
    assert row["tombstones"] == sum(each.value is None for each in records)
    assert [row[f"size_p{each}"] for each in (50, 95, 99)] == [nearest_rank(sizes, each) for each in (50, 95, 99)]
    assert row["size_max"] == max(sizes)
    in_bucket = dict(row["size_histogram"])
    assert sum(in_bucket.values()) == len(records)
    for size in set(sizes):
        assert in_bucket[-1 if size == 0 else math.floor(4 * math.log2(size))] >= sizes.count(size)
    assert row["keys"] == len(keys)
    top = {(each["key"], each["key_bytes"]): each["records"] for each in row["top_keys"] or ()}
    by_count = sorted(keys.values(), reverse=True)[:10]
    assert sorted(top.values(), reverse=True) == by_count
    assert all(keys[key] == top[key[:64], len(key)] for key in keys if (key[:64], len(key)) in top)
    assert row["top_key_share"] == (max(by_count) / sum(keys.values()) if keys else None)


def test_numbers_are_those_of_the_records_that_were_produced(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    records = skewed(instance)
    send(instance, records[:200])
    send(instance, records[200:], Compression.ZSTD)

    result = run_job()

    rows, expected = stored(tmp_path / "out"), model(records)
    assert rows.keys() == expected.keys()
    for key, found in expected.items():
        check_row(rows[key], found)
    assert (result["rows"], result["records"]) == (len(expected), len(records))
    totals = {hour: sum(row["bytes"] for (topic, _, at), row in rows.items() if (topic, at) == ("orders", hour))
              for _, _, hour in rows}  # fmt: skip
    for (topic, _, hour), row in rows.items():
        if topic == "orders":
            assert row["heat"] == pytest.approx(row["bytes"] * 3 / totals[hour])


@pytest.mark.minutes
def test_append_lag_is_from_the_timestamp_to_the_segment(instance: Instance, run_job: RunJob, tmp_path: Path) -> None:
    new_topic(instance, "orders")
    now_ms = instance.clock.now_ms()
    records = [SentRecord("orders", 0, now_ms - each, b"k", b"v") for each in (90_000, 2_000, 10)]
    for each in records:
        send(instance, [each])
    times = [segment_time_ms(located.ref.segment_id) for located in refs_of(instance, key_of(instance, "orders"))]
    lags = defaultdict(list)
    for each, time_ms in zip(records, times, strict=True):
        lags[each.timestamp_ms // HOUR_MS * HOUR_MS].append(time_ms - each.timestamp_ms)

    run_job()

    rows = stored(tmp_path / "out")
    assert {hour for _, _, hour in rows} == lags.keys()
    for (_, _, hour), row in rows.items():
        assert row["append_lag_records"] == len(lags[hour])
        assert row["append_lag_ms_max"] == max(lags[hour])
        assert row["append_lag_ms_p50"] == nearest_rank(lags[hour], 50)


def test_lag_counts_the_records_that_a_group_has_not_read(instance: Instance, run_job: RunJob, tmp_path: Path) -> None:
    new_topic(instance, "orders", partitions=3)
    start_ms = instance.clock.now_ms() - 10 * HOUR_MS
    for number in range(20):
        send(
            instance, [SentRecord("orders", partition, start_ms + number * 60_000, None, b"v") for partition in (0, 1)]
        )
    offsets = {0: 7, 1: 20, 2: 0}
    entries = [CommitEntry(topic="orders", partition=each, offset=offset) for each, offset in offsets.items()]
    assert commit_offsets(instance, "billing", entries) == (None,) * 3

    run_job()
    truncate(instance, "orders", {0: 12})
    run_job()

    first, second = (pq.read_table(path).to_pylist() for path in sorted((tmp_path / "out" / "lag").iterdir()))
    for rows, next_offset in ((first, 7), (second, 12)):
        assert [(row["group"], row["partition"], row["lag_records"]) for row in rows] == [
            ("billing", 0, 20 - next_offset), ("billing", 1, 0), ("billing", 2, 0),
        ]  # fmt: skip
        run_ms = int(rows[0]["run_at"].timestamp() * 1000)
        assert [row["lag_ms"] for row in rows] == [run_ms - (start_ms + next_offset * 60_000), 0, 0]


def test_store_without_records_has_no_hours(instance: Instance, run_job: RunJob) -> None:
    assert run_job()["hours"] == 0
    new_topic(instance, "nothing", partitions=2)
    assert run_job()["hours"] == 0


@pytest.mark.minutes
def test_results_may_lie_in_a_bucket(instance: Instance, run_job: RunJob, emulator_port: int, storage: Storage) -> None:
    new_topic(instance, "orders")
    send(instance, [SentRecord("orders", 0, hour_ago(instance, 2), b"k", b"v")])
    place = f"s3://{storage.archive}/reports/"
    for _ in range(2):
        run_job("--from", "earliest", output=place)
    s3 = client("s3", emulator_port)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=storage.archive)["Contents"]]
    [hour] = [key for key in keys if key.startswith("reports/hours/")]
    table = pq.read_table(io.BytesIO(s3.get_object(Bucket=storage.archive, Key=hour)["Body"].read()))
    assert table.column("records").to_pylist() == [1]
    assert len([key for key in keys if key.startswith("reports/lag/")]) == 2


@pytest.mark.minutes
def test_topics_that_are_named_are_counted_alone_and_go_on_from_where_they_were(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    """The run completes nothing for the other topics."""
    records = skewed(instance)
    send(instance, records)
    of_orders = [each for each in records if each.topic == "orders"]
    entries = [CommitEntry(topic=topic, partition=0, offset=0) for topic in ("orders", "telemetry")]
    assert commit_offsets(instance, "billing", entries) == (None,) * 2

    result = run_job("--topic", "orders", "--topic", "orders", "--topic", "nothing")
    assert result["records"] == len(of_orders)
    assert {topic for topic, _, _ in stored(tmp_path / "out")} == {"orders"}
    assert run_job("--topic", "orders")["records"] == 0
    assert run_job("--topic", "orders", "--topic", "telemetry")["records"] == len(records)

    result = run_job()
    assert result["records"] == len(records)
    assert run_job("--topic", "telemetry")["records"] == 0
    assert [len(pq.read_table(path)) for path in (tmp_path / "out" / "lag").iterdir()] == [2] * 5


def test_count_covers_the_remaining_records_when_a_topic_is_compacted(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    start_ms = hour_ago(instance, 2)
    topic = create_topic(instance, "state", 1, {"cleanup_policy": "compact"})
    for number in range(40):
        send(instance, [SentRecord(topic.name, 0, start_ms + number, b"k%d" % (number % 4), b"v")])
    settings = CompactionSettings(age_ms_min=0, refs_min=2, dirty_share_min=0.0, keys_max=1_000)
    compacted = compact(instance, topic.name, 0, settings, budget_ms=math.inf, is_dry_run=False)
    assert compacted.runs

    run_job()

    [row] = stored(tmp_path / "out").values()
    left = [each.ref.record_count for each in refs_of(instance, key_of(instance, "state"))]
    assert row["records"] == sum(left)
    assert row["records"] < 40
    assert row["keys"] == 4
    assert row["append_lag_records"] < row["records"], "of what is merged it is not known when it was appended"


@pytest.mark.minutes
def test_as_many_keys_as_records_are_counted(instance: Instance, run_job: RunJob, tmp_path: Path) -> None:
    new_topic(instance, "orders", partitions=1)
    start_ms = hour_ago(instance, 2)
    for batch in range(50):
        keys = range(batch * 4_000, (batch + 1) * 4_000)
        send(instance, [SentRecord("orders", 0, start_ms, b"prefix" * 20 + b"%d" % each, None) for each in keys])
    send(instance, [SentRecord("orders", 0, start_ms, b"twice", None)] * 2)

    run_job()

    [row] = stored(tmp_path / "out").values()
    assert (row["records"], row["keys"], row["tombstones"]) == (200_002, 200_001, 200_002)
    assert len(row["top_keys"]) == 10
    assert row["top_keys"][0] == {"key": b"twice", "key_bytes": 5, "records": 2, "bytes": 10}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "yesterday"], "'yesterday' is no hour"),
        (["--from", "2026-11-21", "--to", "2026-11-20"], "nothing lies between them"),
        (["--from", "2099-01-01"], "nothing lies between them"),
        (["--output", "gs://bucket"], "is no place for results"),
        (["--output", ""], "is no place for results"),
        (["--topic", "nowhere"], "nowhere"),
        (["--topic", "no/name"], "no/name"),
        (["--output", "s3://nobody-s/reports"], "of s3://nobody-s/reports/.*NoSuchBucket"),
        (["--output", "/proc/nowhere"], "put of file:///proc/nowhere/lag/"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    options: list[str], message: str, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(analyze, "measured_records")
    with pytest.raises(PenstockError, match=message):
        run_job(*options)


@pytest.mark.parametrize("options", [["--report-days", "7"], ["--late-hours", "-1"], ["--colour"]])
def test_job_exits_with_2_when_an_option_is_malformed(options: list[str], run_job: RunJob) -> None:
    with pytest.raises(SystemExit) as ended:
        run_job(*options)
    assert ended.value.code == 2


def test_output_must_be_given_where_there_is_no_bucket_for_results(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: storage)
    with pytest.raises(PenstockError, match="give --output"):
        analyze.main([])
