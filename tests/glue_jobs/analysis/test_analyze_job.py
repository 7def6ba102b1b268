"""The job `analyze` on real storage: its numbers agree with the records that the test produced."""

import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import analyze
from localstack.clients import client
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import PenstockError
from penstock_core.ids import segment_time_ms
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.quorum import Acks
from penstock_service.adapters.aws import Storage
from penstock_service.compaction.compact import compact
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.delete_topic import delete_topic
from penstock_service.topics.truncate import truncate
from penstock_spark.analysis.measure import HOUR_MS
from tests.support.service import entry, key_of, new_topic, refs_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[tuple[str, int, int], dict[str, Any]]  # by topic, partition and hour
RunJob = Callable[..., dict[str, Any]]


class SentRecord(NamedTuple):
    """A record as the test produced it."""

    topic: str
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@pytest.fixture
def run_job(
    storage: Storage,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunJob:
    """Run the script as `--local` does, and return its result."""
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: storage)

    def run(*options: str, output: str = str(tmp_path / "out")) -> dict[str, Any]:
        analyze.main(["--output", output, *options])
        return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))

    return run


def send(instance: Instance, records: Sequence[SentRecord], compression: Compression = Compression.NONE) -> None:
    """One append for each partition."""
    by_partition: dict[tuple[str, int], list[NewRecord]] = defaultdict(list)
    for each in records:
        by_partition[each.topic, each.partition].append(NewRecord(each.timestamp_ms, each.key, each.value))
    for (topic, partition), found in by_partition.items():
        [result] = produce(instance, [entry(topic, partition, encode(found, compression))], Acks.QUORUM)
        assert not isinstance(result, PenstockError)


def stored(folder: Path) -> Rows:
    """All rows of all hours' files."""
    rows = [row for path in sorted(folder.glob("hours/*/hour.parquet")) for row in pq.read_table(path).to_pylist()]
    by_key = {(row["topic"], row["partition"], int(row["hour"].timestamp() * 1000)): row for row in rows}
    assert len(by_key) == len(rows), "a topic, partition and hour has one row"
    return by_key


def model(records: Sequence[SentRecord]) -> dict[tuple[str, int, int], list[SentRecord]]:
    """The records by topic, partition and hour."""
    found = defaultdict(list)
    for each in records:
        found[each.topic, each.partition, each.timestamp_ms // HOUR_MS * HOUR_MS].append(each)
    return found


def nearest_rank(values: Sequence[int], percent: int) -> int:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def hour_ago(instance: Instance, hours: int) -> int:
    return (instance.clock.now_ms() // HOUR_MS - hours) * HOUR_MS


def skewed(instance: Instance) -> list[SentRecord]:
    """Two topics over four hours: one key with most records, keys and values that are null, empty, binary and large."""
    new_topic(instance, "orders", partitions=3)
    new_topic(instance, "telemetry", partitions=1)
    new_topic(instance, "nothing", partitions=2)
    records = []
    for hours in (4, 3, 2):
        start_ms = hour_ago(instance, hours)
        for number in range(120):
            key = b"whale" if number % 3 else f"minnow-{number}".encode()
            at_ms = start_ms + number * 20_000
            records.append(SentRecord("orders", 1 if key == b"whale" else 0, at_ms, key, b"v" * (number * hours)))
    start_ms = hour_ago(instance, 3)
    records += [
        SentRecord("telemetry", 0, start_ms, None, b"no key"),
        SentRecord("telemetry", 0, start_ms + 1, b"", b"an empty key"),
        SentRecord("telemetry", 0, start_ms + 2, b"gone", None),
        SentRecord("telemetry", 0, start_ms + 3, None, None),
        SentRecord("telemetry", 0, start_ms + 4, b"\xff\x00<b>", b""),
        SentRecord("telemetry", 0, start_ms + 5, b"k" * 300_000, b"a large key"),
        SentRecord("telemetry", 0, start_ms + HOUR_MS - 1, b"", b"the hour's last"),
        SentRecord("telemetry", 0, start_ms + HOUR_MS, b"next", b"the next hour's first"),
    ]
    return records


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
    report = (tmp_path / "out" / "report.html").read_text()
    assert "orders" in report
    assert "Without records: nothing" in report
    assert "whale" in report


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
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Records behind, at each run" in report
    assert "Group <b>billing</b> has no members and is 8 records behind" in report


def test_store_without_records_gets_a_report_that_says_so(instance: Instance, run_job: RunJob, tmp_path: Path) -> None:
    assert run_job()["hours"] == 0
    new_topic(instance, "nothing", partitions=2)
    assert run_job()["hours"] == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert "No records in these hours" in report
    assert "Without records: nothing" in report


@pytest.mark.minutes
def test_results_may_lie_in_a_bucket(instance: Instance, run_job: RunJob, emulator_port: int, storage: Storage) -> None:
    new_topic(instance, "orders")
    send(instance, [SentRecord("orders", 0, hour_ago(instance, 2), b"k", b"v")])
    place = f"s3://{storage.archive}/reports/"
    for _ in range(2):
        result = run_job("--from", "earliest", output=place)
        assert result["report"] == f"s3://{storage.archive}/reports/report.html"
    s3 = client("s3", emulator_port)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=storage.archive)["Contents"]]
    [hour] = [key for key in keys if key.startswith("reports/hours/")]
    table = pq.read_table(io.BytesIO(s3.get_object(Bucket=storage.archive, Key=hour)["Body"].read()))
    assert table.column("records").to_pylist() == [1]
    assert len([key for key in keys if key.startswith("reports/lag/")]) == 2


def test_topics_that_are_named_are_counted_alone_and_go_on_from_where_they_were(
    instance: Instance, run_job: RunJob, tmp_path: Path
) -> None:
    """The run completes nothing for the other topics, and does not replace the report of all topics."""
    records = skewed(instance)
    send(instance, records)
    of_orders = [each for each in records if each.topic == "orders"]
    entries = [CommitEntry(topic=topic, partition=0, offset=0) for topic in ("orders", "telemetry")]
    assert commit_offsets(instance, "billing", entries) == (None,) * 2

    result = run_job("--topic", "orders", "--topic", "orders", "--topic", "nothing")
    assert result["records"] == len(of_orders)
    assert {topic for topic, _, _ in stored(tmp_path / "out")} == {"orders"}
    assert result["report"].endswith("/report-topics.html")
    report = (tmp_path / "out" / "report-topics.html").read_text()
    assert "Without records: nothing" in report
    assert "telemetry" not in report
    assert not (tmp_path / "out" / "report.html").exists()
    assert run_job("--topic", "orders")["records"] == 0
    assert run_job("--topic", "orders", "--topic", "telemetry")["records"] == len(records)

    result = run_job()
    assert result["records"] == len(records)
    assert result["report"].endswith("/report.html")
    assert "telemetry" in (tmp_path / "out" / "report.html").read_text()
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


@pytest.mark.parametrize(
    "options", [["--report-days", "0"], ["--report-days", "367"], ["--late-hours", "-1"], ["--colour"]]
)
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


def _hour_text(instance: Instance, hours: int) -> str:
    from penstock_spark.analysis.hourly import hour_text

    return hour_text(hour_ago(instance, hours))
