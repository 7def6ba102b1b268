"""The job `archive` by Spark's tasks: from an emulator's DynamoDB and S3 into a bucket, or into a catalog's tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_spark.archive.iceberg_table import open_catalog
from penstock_spark.result_store import open_results
from penstock_spark.scripts import archive
from tests.glue_jobs.conftest import RunScript, lines_of
from tests.support.service import entry, key_of, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RunJob = Callable[..., dict[str, Any]]
SMALL = ("--group-bytes", "200", "--commit-bytes", "900")


@pytest.fixture
def run_job(run_script: RunScript) -> Callable[..., dict[str, Any]]:
    """Run `archive`, and return its result."""
    return lambda *options: run_script(archive.main, *options)[-1]


def fill(instance: Instance, topic: str, count: int = 20) -> list[tuple[int, int, bytes]]:
    new_topic(instance, topic, partitions=2)
    appended = [send(instance, topic, f"{number}-a", f"{number}-b", partition=number % 2) for number in range(count)]
    return sorted(
        (number % 2, each.base_offset + index, f"{number}-{letter}".encode())
        for number, each in enumerate(appended)
        for index, letter in enumerate("ab")
    )


def rows(table: Any) -> list[tuple[int, int, bytes]]:
    columns = table.select(["partition", "offset", "value"]).to_pydict()
    return sorted(zip(columns["partition"], columns["offset"], columns["value"], strict=True))


@pytest.mark.minutes
def test_all_topics_are_archived_into_the_bucket_for_results(
    run_job: RunJob, instance: Instance, stored: Storage
) -> None:
    orders, payments = fill(instance, "orders"), fill(instance, "payments", count=3)

    result = run_job(*SMALL)

    filesystem, root = open_results(f"s3://{stored.results}/lake", stored).filesystem()
    for topic, expected in (("orders", orders), ("payments", payments)):
        found = ds.dataset(f"{root}{topic}/data", filesystem=filesystem, partitioning="hive").to_table()
        assert rows(found) == expected
    assert result["failed"] == []
    assert [(each["topic"], each["records"]) for each in result["topics"]] == [("orders", 40), ("payments", 6)]
    assert [each["commits"] for each in run_job(*SMALL)["topics"]] == [0, 0]


@pytest.mark.minutes
def test_a_topic_is_archived_into_a_folder_that_spark_reads_by_itself(
    run_job: RunJob, instance: Instance, spark: "SparkSession", tmp_path: Path
) -> None:
    expected = fill(instance, "orders")
    run_job("--topic", "orders", "--output", str(tmp_path), *SMALL)

    frame = spark.read.parquet(str(tmp_path / "orders" / "data"))

    assert sorted(tuple(row) for row in frame.select("partition", "offset", "value").collect()) == expected
    assert "day" in frame.columns


def test_a_topic_is_archived_into_a_table_of_a_catalog(
    run_job: RunJob, instance: Instance, stored: Storage, tmp_path: Path
) -> None:
    expected = fill(instance, "orders")
    catalog = f"sqlite:///{tmp_path}/catalog.db"

    run_job("--topic", "orders", "--catalog", catalog, *SMALL)

    table = open_catalog(catalog, stored)[0].load_table("penstock.orders")
    assert rows(table.scan().to_arrow()) == expected
    assert table.location() == f"s3://{stored.results}/lake/orders"


def test_the_job_fails_after_all_else_is_done_if_a_topic_s_records_expired_or_its_table_cannot_be_written(
    run_script: RunScript, instance: Instance, stored: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(instance, "orders", count=4)
    run_script(archive.main)
    for topic, count in (("broken", 2), ("zebras", 2)):
        fill(instance, topic, count=count)
    open_results(f"s3://{stored.results}/lake", stored).put_new(
        "broken/_penstock/table.json",
        json.dumps({"topic_id": instance.topic_cache.read_through("broken").topic_id, "kind": "iceberg"}).encode(),
    )
    send(instance, "orders", "late")
    instance.stores.log.raise_log_start(key_of(instance, "orders"), Offset(5))

    with pytest.raises(PenstockError, match="1 topics failed, and 1 offsets were removed") as raised:
        run_script(archive.main)

    assert raised.value.code is ErrorCode.INTERNAL
    lines = lines_of(capsys)
    assert lines[-1]["failed"] == ["broken"]
    assert [each["topic"] for each in lines[-1]["topics"]] == ["orders", "zebras"]
    [expired] = [each for each in lines if each["event"] == "expired"]
    assert expired["offsets"] == [{"partition": 0, "start_offset": 4, "end_offset": 5}]


def test_options_are_refused_before_the_work_begins_when_they_are_wrong(
    run_job: RunJob, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PenstockError, match="topic 'nowhere' does not exist"):
        run_job("--topic", "nowhere")
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: storage)
    with pytest.raises(PenstockError, match="give --output s3://bucket/prefix or a folder, or --results BUCKET"):
        archive.main([])
    for options in (["--group-bytes", "0"], ["--commit-bytes", "1k"]):
        with pytest.raises(SystemExit):
            archive.main(options)


def test_values_are_typed_by_a_schema_and_a_rebuild_types_all_of_them_anew(
    run_script: RunScript, instance: Instance, stored: Storage, tmp_path: Path
) -> None:
    catalog, path = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "order.json"
    new_topic(instance, "orders", partitions=2)
    send(instance, "orders", '{"n": 1}', '{"n": "two"}')
    path.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    options = ("--topic", "orders", "--catalog", catalog, "--schema", f"orders=json:{path}", *SMALL)

    result = run_script(archive.main, *options)[-1]

    table = open_catalog(catalog, stored)[0].load_table("penstock.orders")
    assert [(each["n"], each["_raw"]) for each in table.scan().to_arrow().to_pylist()] == [
        (1, None),
        (None, b'{"n": "two"}'),
    ]
    assert result["topics"][0]["unfit_records"] == 1
    path.write_text('{"type": "object", "properties": {"n": {"type": ["integer", "string"]}}}')
    send(instance, "orders", '{"n": 3}')
    lines = run_script(archive.main, *options, "--rebuild", "--partition-by", "orders=n")
    table.refresh()
    assert [str(each.transform) for each in table.spec().fields] == ["day", "identity"]
    assert len([*table.scan(row_filter="n = '3'").plan_files()]) == 1
    assert [each["n"] for each in table.scan().to_arrow().sort_by("offset").to_pylist()] == ["1", '"two"', "3"]
    [rebuilt] = [each for each in lines if each["event"] == "rebuilt"]
    assert (rebuilt["records"], rebuilt["unfit"]) == (2, 0)


def test_topic_that_names_its_schema_is_typed_without_an_option_and_another_topic_is_not(
    run_script: RunScript, instance: Instance, stored: Storage, tmp_path: Path
) -> None:
    lake, catalog = open_results(f"s3://{stored.results}/lake", stored), f"sqlite:///{tmp_path}/catalog.db"
    for name in ("a", "b"):
        document = {"type": "object", "properties": {name: {"type": "integer"}}}
        lake.put_new(f"_schemas/{name}.json", json.dumps(document).encode())
    place = f"json:s3://{stored.results}/lake/_schemas/a.json"
    new_topic(instance, "orders", value_schema=place)
    new_topic(instance, "plain")
    new_topic(instance, "broken", value_schema=f"avro:s3://{stored.results}/lake/nowhere.avsc")
    for topic in ("orders", "plain", "broken"):
        send(instance, topic, '{"a": 1, "b": 2}')

    with pytest.raises(PenstockError, match="1 topics failed"):
        run_script(archive.main, "--catalog", catalog, *SMALL)

    opened = open_catalog(catalog, stored)[0]
    [row] = opened.load_table("penstock.orders").scan().to_arrow().to_pylist()
    assert (row["a"], row["_raw"]) == (1, None)
    assert "a" not in opened.load_table("penstock.plain").scan().to_arrow().schema.names
    assert not opened.table_exists("penstock.broken")

    option = f"orders=json:s3://{stored.results}/lake/_schemas/b.json"  # it goes before the topic's
    run_script(archive.main, "--topic", "orders", "--catalog", catalog, "--schema", option, "--rebuild", *SMALL)
    assert [each["b"] for each in opened.load_table("penstock.orders").scan().to_arrow().to_pylist()] == [2]
    run_script(archive.main, "--topic", "orders", "--catalog", catalog, "--rebuild", *SMALL)
    [row] = opened.load_table("penstock.orders").scan().to_arrow().to_pylist()
    assert (row["a"], "b" in row) == (1, False)

    lines = run_script(archive.main, "--topic", "orders", "--output", str(tmp_path / "plain"))
    assert [each["topic"] for each in lines if each["event"] == "untyped"] == ["orders"]


def test_compacted_topics_alone_get_a_table_of_their_latest_rows_and_small_files_are_joined(
    run_script: RunScript, instance: Instance, stored: Storage, tmp_path: Path
) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    new_topic(instance, "orders", partitions=2)
    new_topic(instance, "states", partitions=2, cleanup_policy="compact")
    for value in (b"1", b"2", None):
        batch = encode([NewRecord(0, b"a", b"1"), NewRecord(0, b"b", value)], Compression.NONE)
        produce(instance, [entry("states", 1, batch)], Acks.QUORUM)
    for number in range(8):
        send(instance, "orders", f"{number}" * 100)

    lines = run_script(archive.main, "--catalog", catalog, "--latest", "--merge-files", "--remove-orphans", *SMALL)

    opened = open_catalog(catalog, stored)[0]
    found = opened.load_table("penstock.states_latest").scan().to_arrow().to_pylist()
    assert [(each["key"], each["value"], each["offset"]) for each in found] == [(b"a", b"1", 4)]
    assert [(each["table"], each["rows"]) for each in lines if each["event"] == "latest"] == [("states_latest", 1)]
    assert not opened.table_exists("penstock.orders_latest")
    orders = opened.load_table("penstock.orders")
    [merged] = [each for each in lines if each["event"] == "merged"]
    assert (merged["table"], merged["files_before"] > 3, merged["files_after"]) == ("orders", True, 1)
    assert [each["value"] for each in orders.scan().to_arrow().to_pylist()] == [b"%d" % n * 100 for n in range(8)]
    told = [(each["table"], each["files"]) for each in lines if each["event"] == "orphans"]
    assert sorted(told) == [("orders", 0), ("states", 0), ("states_latest", 0)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--latest"], "need a --catalog"),
        (["--merge-files"], "need a --catalog"),
        (["--remove-orphans"], "need a --catalog"),
        (["--partition-by", "orders"], "give TOPIC=COLUMN"),
        (["--schema", "orders"], "give TOPIC=json:FILE, TOPIC=avro"),
        (["--schema", "orders=xml:a"], "give TOPIC=json:FILE, TOPIC=avro"),
        (["--schema", "orders=json:"], "give TOPIC=json:FILE, TOPIC=avro"),
        (["--schema", "orders=json:/nowhere/x.json"], "there is no text"),
        (["--schema", "orders=protobuf:{good}#a.B"], "no FileDescriptorSet"),
        (["--schema", "orders=json:{good}", "--schema", "orders=json:{good}"], "twice"),
        (["--schema", "orders=json:{bad}"], "names no field"),
        (["--schema", "bills=json:{good}"], "names bills, which this run does not archive"),
        (["--schema", "orders=json:{good}"], "types need a --catalog"),
        (["--rebuild"], "give their --schema"),
    ],
)
def test_schemas_are_refused_before_the_work_begins_when_they_are_wrong(
    run_job: RunJob, instance: Instance, tmp_path: Path, options: list[str], why: str
) -> None:
    new_topic(instance, "orders")
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    bad.write_text("{}")
    with pytest.raises(PenstockError, match=why):
        run_job("--topic", "orders", *(each.format(good=good, bad=bad) for each in options))
