"""One emulator and one Spark session for all tests of the jobs; new storage for each test."""

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from localstack.clients import REGION, ROOT_KEY, client, endpoint_url
from localstack.emulator import install_ministack, ministack_python, start_emulator, stop_emulator
from localstack.places import CHECKOUT, Places
from penstock_service.adapters.aws import Storage, ZoneBucket, format_zones
from penstock_service.instance.instance import Instance
from penstock_spark.storage import open_instance
from tests.contract.conftest import create_table
from tests.end_to_end.local_stack import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RunScript = Callable[..., list[dict[str, Any]]]

PACKAGE_FOLDERS = ("functions", "sdk", "glue_jobs")


@pytest.fixture(scope="session")
def emulator_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An empty emulator, which stops after the tests. Takes about 2 s."""
    places = Places(tmp_path_factory.mktemp("emulator"))
    yield start_emulator(places, ministack_python() or install_ministack(), free_port()).port
    stop_emulator(places)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A small local session. Takes about 5 s."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(str(CHECKOUT / each) for each in (".", *PACKAGE_FOLDERS)),
        "spark.executorEnv.AWS_ACCESS_KEY_ID": ROOT_KEY,
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": ROOT_KEY,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        # A compiler and a collector for programs that end soon: with them the tests take half the CPU.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def storage(emulator_port: int) -> Storage:
    """Empty tables and buckets of the test's own."""
    own = secrets.token_hex(4)
    names = {name: f"{own}-{name}" for name in ("topics", "log", "groups", "a", "b", "c", "archive", "repairs")}
    dynamodb, s3 = client("dynamodb", emulator_port), client("s3", emulator_port)
    for table in ("topics", "log", "groups"):
        create_table(dynamodb, names[table])
    for bucket in ("a", "b", "c", "archive"):
        s3.create_bucket(Bucket=names[bucket])
    queue: Any = client("sqs", emulator_port).create_queue(QueueName=names["repairs"])
    return Storage(
        topics_table=names["topics"],
        log_table=names["log"],
        groups_table=names["groups"],
        repair_queue_url=str(queue["QueueUrl"]),
        zones=tuple(ZoneBucket(name=zone, bucket=names[zone]) for zone in ("a", "b", "c")),
        archive=names["archive"],
        region=REGION,
        endpoint_url=endpoint_url(emulator_port),
        access_key=ROOT_KEY,
        secret_key=ROOT_KEY,
    )


@pytest.fixture
def instance(storage: Storage) -> Instance:
    """An instance in this process on the test's storage."""
    return open_instance(storage)


@pytest.fixture
def storage_options(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The storage as options of the data source. The environment holds the emulator's key, as it would hold
    credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, ROOT_KEY)
    return {
        "topicsTable": storage.topics_table,
        "logTable": storage.log_table,
        "groupsTable": storage.groups_table,
        "repairQueueUrl": str(storage.repair_queue_url),
        "zones": format_zones(storage.zones),
        "archive": storage.archive,
        "region": str(storage.region),
        "endpointUrl": str(storage.endpoint_url),
    }


@pytest.fixture
def stored(storage: Storage, emulator_port: int) -> Storage:
    """The test's storage, with a bucket for results."""
    results = f"{storage.archive}-results"
    client("s3", emulator_port).create_bucket(Bucket=results)
    return replace(storage, results=results)


@pytest.fixture
def run_script(
    stored: Storage, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunScript:
    """Run a job's `main` with options on the test's storage, as `--local` does. Returns the lines that the job
    printed."""
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: replace(stored, catalog=given.get("catalog")))

    def run(main: Callable[[Sequence[str]], None], *options: str) -> list[dict[str, Any]]:
        main(options)
        return lines_of(capsys)

    return run


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines that a job has printed since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
