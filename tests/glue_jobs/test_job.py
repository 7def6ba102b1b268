"""The frame of a job: its options, however a program starts it."""

import json

import pytest

from penstock_core.errors import PenstockError
from penstock_service.adapters.aws import parse_zones
from penstock_spark.job import job_parser, parse_job

STORAGE = [
    "--topics-table", "topics", "--log-table", "log", "--groups-table", "groups", "--repair-queue-url", "http://queue",
    "--zones", "a=one,b=two", "--archive", "archive",
]  # fmt: skip


def test_options_are_the_script_s_own_and_the_storage() -> None:
    parser = job_parser("some", "Does something.")
    parser.add_argument("--topic")
    options, storage = parse_job(parser, [*STORAGE, "--topic", "orders"])
    assert (options.topic, storage.log_table, storage.zones) == ("orders", "log", parse_zones("a=one,b=two"))


def test_glue_s_own_arguments_are_passed_over() -> None:
    parser = job_parser("some", "Does something.")
    parser.add_argument("--topic")
    argv = [
        "true", "--job-bookmark-option", "job-bookmark-disable", "--JOB_NAME", "penstock-some", "--JOB_RUN_ID", "jr_1",
        "--penstock-storage", json.dumps(STORAGE), "--TempDir", "s3://temporary",
        "--penstock-arguments", json.dumps(["--topic", "orders"]),
    ]  # fmt: skip
    options, storage = parse_job(parser, argv)
    assert (options.topic, storage.topics_table) == ("orders", "topics")


def test_glue_may_give_no_arguments() -> None:
    _, storage = parse_job(job_parser("some", "Does something."), ["--penstock-storage", json.dumps(STORAGE)])
    assert storage.archive == "archive"


@pytest.mark.parametrize("text", ["", "--topic orders", '"orders"', "[1]"])
def test_arguments_are_refused_when_they_are_no_list(text: str) -> None:
    argv = ["--penstock-storage", json.dumps(STORAGE), "--penstock-arguments", text]
    with pytest.raises(PenstockError, match=r"--penstock-arguments .* give a JSON list of texts"):
        parse_job(job_parser("some", "Does something."), argv)
