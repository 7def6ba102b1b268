"""One topic that nobody can decode: the jobs fail its line, do all else, and skip its batches when asked to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import penstock_spark
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.compaction.compact import compact as compact_partition
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.scripts import analyze, archive, compact
from tests.glue_jobs.conftest import RunScript, lines_of
from tests.support.poison import undecodable_batch
from tests.support.service import entry, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000


@pytest.fixture
def topics(instance: Instance) -> Callable[[], None]:
    """The topics apple, poisoned and zebra, one record each; poisoned has 5 offsets more that nobody can decode."""
    time_ms = instance.clock.now_ms() - 3 * HOUR_MS

    def put(topic: str, *batches: bytes) -> None:
        assert not isinstance(produce(instance, [entry(topic, 0, *batches)], Acks.QUORUM)[0], PenstockError)

    def make() -> None:
        for topic in ("apple", "poisoned", "zebra"):
            new_topic(instance, topic)
            put(topic, encode([NewRecord(time_ms, b"k", topic.encode())]))
        put("poisoned", undecodable_batch(5))

    return make


def failures(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["topic"]: each["error"] for each in lines if each["event"] == "failed"}


def test_archive_takes_the_other_topics_when_a_worker_fails_at_one(
    run_script: RunScript, topics: Callable[[], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics()

    with pytest.raises(PenstockError, match="1 topics failed") as raised:
        run_script(archive.main, "--output", str(tmp_path))

    assert raised.value.code is ErrorCode.INTERNAL
    lines = lines_of(capsys)
    assert lines[-1]["failed"] == ["poisoned"]
    assert [(each["topic"], each["records"]) for each in lines[-1]["topics"]] == [("apple", 1), ("zebra", 1)]
    message = failures(lines)["poisoned"]["message"]
    assert "partition 0 of topic 'poisoned'" in message
    assert "seek to 6 to skip it" in message
    assert len(message) <= 500


def test_archive_skips_and_counts_undecodable_batches_when_asked(
    run_script: RunScript, topics: Callable[[], None], tmp_path: Path
) -> None:
    topics()

    result = run_script(archive.main, "--output", str(tmp_path), "--on-undecodable", "skip")[-1]

    done = result["topics"][1]
    assert result["failed"] == []
    assert (done["topic"], done["records"], done["skipped_batches"], done["skipped_offsets"]) == ("poisoned", 1, 1, 5)
    [note] = (tmp_path / "poisoned" / "_penstock" / "plans").glob("*/*.json")
    assert json.loads(note.read_bytes())["skipped"] == [[0, 1, 6]]
    again = run_script(archive.main, "--output", str(tmp_path))[-1]  # goes on behind the batch
    assert (again["failed"], again["topics"][1]["commits"]) == ([], 0)


@pytest.mark.minutes
def test_analyze_counts_the_other_topics_and_completes_no_hour_when_a_worker_fails_at_one(
    run_script: RunScript,
    instance: Instance,
    topics: Callable[[], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics()
    # A group that is at the batch: its lag is measured too.
    [outcome] = commit_offsets(instance, "late", [CommitEntry(topic="poisoned", partition=0, offset=1)])
    assert not isinstance(outcome, PenstockError)

    with pytest.raises(PenstockError, match="1 topics failed"):
        run_script(analyze.main, "--output", str(tmp_path))

    lines = lines_of(capsys)
    assert (lines[-1]["failed"], lines[-1]["records"]) == (["poisoned"], 2)
    assert lines[-1]["complete_to"] == "1970-01-01T00"
    assert "seek to 6 to skip it" in failures(lines)["poisoned"]["message"]
    assert counted_topics(tmp_path) == ["apple", "zebra"]

    lines = run_script(analyze.main, "--output", str(tmp_path), "--on-undecodable", "skip")
    assert (lines[-1]["failed"], lines[-1]["skipped_batches"], lines[-1]["skipped_offsets"]) == ([], 1, 5)
    assert counted_topics(tmp_path) == ["apple", "poisoned", "zebra"]
    assert lines[-1]["complete_to"] > "2000"


def counted_topics(folder: Path) -> list[str]:
    found = [pq.read_table(path).column("topic").to_pylist() for path in folder.glob("hours/*/hour.parquet")]
    return sorted(topic for each in found for topic in each)


def test_a_read_skips_undecodable_batches_when_asked(
    spark: "SparkSession", storage_options: dict[str, str], topics: Callable[[], None]
) -> None:
    topics()
    options = {**storage_options, "subscribe": "poisoned"}

    with pytest.raises(Exception, match="seek to 6 to skip it"):  # Spark's own, of a worker's error
        penstock_spark.read(spark, **options).collect()

    rows = penstock_spark.read(spark, **options, onUndecodable="skip").collect()
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(0, b"poisoned")]


def test_compact_goes_on_with_the_other_partitions_whatever_one_raises(
    run_script: RunScript,
    topics: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics()

    def fail_at_poisoned(instance: Instance, topic: str, *arguments: Any, **options: Any) -> Any:
        if topic == "poisoned":
            raise ZeroDivisionError("a defect")
        return compact_partition(instance, topic, *arguments, **options)

    monkeypatch.setattr(compact, "compact", fail_at_poisoned)
    with pytest.raises(PenstockError, match="1 runs of pages failed"):
        run_script(compact.main, "--no-spark", "--age-ms-min", "0")

    done = {each["topic"]: each["errors"] for each in lines_of(capsys) if each["event"] == "compacted"}
    assert done == {"apple": [], "poisoned": ["INTERNAL: ZeroDivisionError: a defect"], "zebra": []}
