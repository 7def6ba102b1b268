"""The job `replay` by Spark's tasks: from a bucket of an emulator into its DynamoDB and S3."""

from pathlib import Path

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.scripts import archive, replay
from tests.glue_jobs.conftest import RunScript
from tests.support.service import head_of, new_topic, read_all, send


def fill(instance: Instance) -> None:
    new_topic(instance, "orders", partitions=3)
    for number in range(18):
        send(instance, "orders", f"{number}-a", f"{number}-b", partition=number % 3)


OPTIONS = ("--table", "orders", "--to", "copy")


def test_a_table_is_replayed_once_however_often_it_is_asked_for(
    run_script: RunScript, instance: Instance, stored: Storage
) -> None:
    fill(instance)
    new_topic(instance, "copy", partitions=3)
    run_script(archive.main, "--group-bytes", "300")

    lines = run_script(replay.main, *OPTIONS, "--round-bytes", "1")
    again = run_script(replay.main, *OPTIONS)

    for partition in range(3):
        assert read_all(instance, "copy", partition) == read_all(instance, "orders", partition)
    assert [each["event"] for each in lines][0::2] == ["replaying", "result"]
    assert {"appended": 36, "repeated": 0, "was_done_before": False}.items() <= lines[-1].items()
    assert lines[-2]["offsets_left"] == 0
    assert (again[-1]["was_done_before"], again[-1]["appended"]) == (True, 0)

    run_script(replay.main, *OPTIONS, "--replay-id", "again", "--partitions", "1", "--starting-offsets", '{"1": 10}')

    assert head_of(instance, "copy", 1).high_watermark == 14


def test_a_table_of_a_catalog_is_replayed_by_key(run_script: RunScript, instance: Instance, tmp_path: Path) -> None:
    fill(instance)
    new_topic(instance, "copy", partitions=1)
    catalog = ("--catalog", f"sqlite:///{tmp_path}/catalog.db")
    run_script(archive.main, *catalog)

    lines = run_script(replay.main, *OPTIONS, *catalog, "--partitioning", "key", "--records-per-second", "100000")

    assert lines[-1]["appended"] == 36
    values = [value for _, value in read_all(instance, "copy")]
    assert sorted(values) == sorted(value for each in range(3) for _, value in read_all(instance, "orders", each))

    with pytest.raises(PenstockError, match="table 'orders' is Iceberg's: give its --catalog"):
        run_script(replay.main, *OPTIONS)


def test_options_are_refused_before_the_work_begins_when_they_are_wrong(
    run_script: RunScript, instance: Instance
) -> None:
    fill(instance)
    new_topic(instance, "copy", partitions=2)
    with pytest.raises(PenstockError, match=r"there is no archived table at s3://.*/lake/orders") as raised:
        run_script(replay.main, *OPTIONS)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC
    run_script(archive.main, "--topic", "orders")

    with pytest.raises(PenstockError, match="topic 'copy' has 2 writable partitions, and the table has partition 2"):
        run_script(replay.main, *OPTIONS)
    with pytest.raises(PenstockError, match="topic 'nowhere' does not exist"):
        run_script(replay.main, "--table", "orders", "--to", "nowhere")
    for wrong in (
        ["--table", "../orders"],
        ["--from-time", "soon"],
        ["--partitions", "1,x"],
        ["--starting-offsets", "7"],
        ["--ending-offsets", '{"0": -1}'],
        ["--records-per-second", "0"],
        ["--round-bytes", "1k"],
    ):
        with pytest.raises(SystemExit):
            run_script(replay.main, *OPTIONS, *wrong)
    assert head_of(instance, "copy").high_watermark == 0
