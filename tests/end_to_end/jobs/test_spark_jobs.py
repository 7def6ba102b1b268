"""Spark jobs on the deployed stack, with the role that they have in the cloud. The emulator enforces IAM."""

import io
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from localstack.places import CHECKOUT
from penstock.admin.admin import Admin
from penstock.consumer.consumer import Consumer
from penstock.producer.producer import Producer
from penstock_core.ids import new_segment_id
from penstock_core.stack_outputs import storage_variables
from penstock_core.storage.keys import segment_key
from penstock_service.adapters.aws import Storage
from penstock_spark.storage import find_storage
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]

PACKAGES = os.pathsep.join(str(CHECKOUT / folder) for folder in ("functions", "sdk", "glue_jobs"))


@pytest.fixture
def outputs(stack: Stack) -> dict[str, str]:
    [found] = stack.root_client("cloudformation").describe_stacks(StackName="Penstock")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


def keys_of_role(stack: Stack, role_arn: str) -> tuple[str, str]:
    """Makes a user with exactly the permissions of the role, and returns its keys."""
    iam = stack.root_client("iam")
    role = role_arn.rpartition("/")[2]
    statements: list[Any] = []
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        statements += iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]
    return stack.create_user(f"as-{role}", {"Version": "2012-10-17", "Statement": statements})


def run_job(stack: Stack, outputs: dict[str, str], folder: Path, job: str, *arguments: str) -> dict[str, Any]:
    """Runs `penstock jobs run --local --wait` with the job's role, and returns the result."""
    key, secret = keys_of_role(stack, outputs[f"Job{job.title()}Role"])
    values = storage_variables(outputs) | {
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
    }
    (folder / ".penstock").mkdir(exist_ok=True)
    (folder / ".penstock" / "jobs.env").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    command = "from penstock.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "jobs", "run", job, "--local", "--wait", "--json", "--cores", "2", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(json.loads(done.stdout)["detail"]))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_sweep_completes_with_the_permissions_of_its_role(
    stack: Stack, outputs: dict[str, str], tmp_path: Path
) -> None:
    transport = stack.transport()
    Admin(transport=transport).create_topic("to-sweep")
    with Producer(transport=transport) as producer:
        for number in range(3):  # a segment each
            producer.send("to-sweep", str(number).encode())
            producer.flush()
    options = {"endpointUrl": stack.endpoint_url, "region": stack.region}
    places: Storage = find_storage(options, environ=storage_variables(outputs))
    s3 = stack.root_client("s3")
    zones = {zone.name: zone.bucket for zone in places.zones}
    held = [key["Key"] for key in s3.list_objects_v2(Bucket=zones["b"])["Contents"]]
    missing, rotten, garbage = held[0], held[1], segment_key(new_segment_id(_now_ms(), b"0123456789"))
    s3.delete_object(Bucket=zones["b"], Key=missing)
    s3.put_object(Bucket=zones["c"], Key=rotten, Body=b"rotten")
    s3.put_object(Bucket=zones["a"], Key=garbage, Body=b"x")

    result = run_job(stack, outputs, tmp_path, "sweep", "--grace-ms", "0", "--checksums")

    assert (result["swept"]["missing"], result["swept"]["copied"], result["scrubbed"]["healed"]) == (1, 1, 1)
    assert result["failures"] == 0
    good = s3.get_object(Bucket=zones["a"], Key=rotten)["Body"].read()
    assert s3.get_object(Bucket=zones["c"], Key=rotten)["Body"].read() == good
    assert missing in [key["Key"] for key in s3.list_objects_v2(Bucket=zones["b"])["Contents"]]
    assert result["swept"]["deleted"] == 1
    assert garbage not in [key["Key"] for key in s3.list_objects_v2(Bucket=zones["a"])["Contents"]]


def test_analyze_completes_with_the_permissions_of_its_role(
    stack: Stack, outputs: dict[str, str], tmp_path: Path
) -> None:
    transport = stack.transport()
    admin = Admin(transport=transport)
    admin.create_topic("to-analyze", 2)
    with Producer(transport=transport) as producer:
        for number in range(400):
            producer.send("to-analyze", b"value", key=b"whale", partition=number % 2)
    with Consumer("to-analyze", transport=transport, group_id="behind", auto_offset_reset="earliest") as consumer:
        assert consumer.poll(max_records=1, timeout_ms=20_000)
        consumer.commit()
    given: dict[str, Any] = {"transport": transport, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        Consumer("to-analyze", group_id="static", group_instance_id="reader-1", client_id="reader", **given) as static,
        Consumer("to-analyze", group_id="silent", client_id="listener", **given) as silent,
    ):
        _join(static, silent, partitions=2)
        static.commit()

        result = run_job(stack, outputs, tmp_path, "analyze")

        described = {group: admin.describe_group(group) for group in ("behind", "static", "silent")}
    names = {each.member_id: each.client_id for group in described.values() for each in group.members}
    assert sorted(names.values()) == ["listener", "reader"]
    lag = _lag_rows(stack, outputs)
    assert lag.keys() >= described.keys()
    for group, found in described.items():
        assert lag[group] == [
            (
                len(found.members),
                each.partition,
                names.get(each.owner or ""),
                each.offset,
                each.high_watermark,
                each.lag,
            )
            for each in found.partitions
            if each.topic == "to-analyze"
        ]
    assert [sum(row[-1] or 0 for row in lag[group]) > 0 for group in described] == [True, True, False]
    assert [row[-1] for row in lag["silent"]] == [None, None]

    bucket = outputs["ResultsBucket"]
    assert result["records"] >= 400
    assert result["group_partitions"] >= 2
    hours = stack.root_client("s3").list_objects_v2(Bucket=bucket, Prefix="reports/hours/")
    assert hours["KeyCount"] >= 1


def _join(*consumers: Consumer, partitions: int) -> None:
    """Polls each consumer, one record at a time, until it has its partitions and a record."""
    read = dict.fromkeys(consumers, 0)

    def poll() -> None:
        for each in consumers:
            read[each] += len(each.poll(max_records=1, timeout_ms=1_000))

    until(lambda: all(len(each.assignment()) >= partitions and read[each] for each in consumers), step=poll)


def _lag_rows(stack: Stack, outputs: dict[str, str]) -> dict[str, list[Any]]:
    """Returns the rows of lag that the only run of analyze found in `to-analyze`, by group."""
    s3, bucket = stack.root_client("s3"), outputs["ResultsBucket"]
    [key] = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix="reports/lag/")["Contents"]]
    rows = pq.read_table(io.BytesIO(s3.get_object(Bucket=bucket, Key=key)["Body"].read())).to_pylist()
    found: dict[str, list[Any]] = defaultdict(list)
    columns = ("members", "partition", "owner_name", "committed_offset", "high_watermark", "lag_records")
    for row in rows:
        if row["topic"] == "to-analyze":
            found[row["group"]].append(tuple(row[each] for each in columns))
    return found


def test_topic_is_archived_and_replayed_with_the_permissions_of_their_roles(
    stack: Stack, outputs: dict[str, str], tmp_path: Path
) -> None:
    transport = stack.transport()
    admin = Admin(transport=transport)
    for topic in ("to-archive", "replayed"):
        admin.create_topic(topic, partitions=2)
    with Producer(transport=transport) as producer:
        for number in range(200):
            producer.send("to-archive", b"value %d" % number, key=b"%d" % (number % 7), headers=[("name", b"1")])

    archived = run_job(stack, outputs, tmp_path, "archive", "--topic", "to-archive")
    replayed = run_job(stack, outputs, tmp_path, "replay", "--table", "to_archive", "--to", "replayed")

    assert [(each["table"], each["records"]) for each in archived["topics"]] == [("to_archive", 200)]
    assert replayed["appended"] == 200
    found = {
        topic: [
            (record.partition, record.offset, record.key, record.value, record.timestamp_ms, record.headers)
            for record in read_all(transport, topic, 200)
        ]
        for topic in ("to-archive", "replayed")
    }
    assert sorted(found["replayed"]) == sorted(found["to-archive"])


def read_all(transport: Any, topic: str, count: int) -> list[Any]:
    with Consumer(topic, transport=transport, auto_offset_reset="earliest") as consumer:
        records: list[Any] = []
        while len(records) < count:
            records += consumer.poll(max_records=count, timeout_ms=1_000)
        return records
