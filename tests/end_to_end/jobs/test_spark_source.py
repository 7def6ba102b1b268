"""Spark with a deployed stack, as in a notebook: it reads from the storage and writes by the API."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from localstack.places import CHECKOUT
from penstock import Admin, Producer
from penstock.http.transport import HttpTransport
from penstock_core.stack_outputs import storage_variables
from tests.end_to_end.local_stack import COMMAND_S_MAX, Stack
from tests.end_to_end.raw_requests import read_all
from tests.end_to_end.stack_storage import StackStorage

pytestmark = [
    pytest.mark.stack,
    pytest.mark.minutes,
    pytest.mark.skipif(not find_spec("pyspark.sql.datasource"), reason="Spark 3.5 has no Python data sources"),
]
PACKAGES = [str(CHECKOUT / each) for each in ("functions", "sdk", "glue_jobs")]
PARTITIONS = 2
RECORDS = 500

SCRIPT = """
import sys
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

import penstock_spark

source, batch_sink, stream_sink, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
penstock_spark.register(spark)
orders = spark.read.format("penstock").option("subscribe", source).load()
copies = orders.selectExpr("key", "value", "partition")
copies.write.format("penstock").option("topic", batch_sink).mode("append").save()

limits = {"maxOffsetsPerTrigger": 200} if find_spec("pyspark.sql.streaming.datasource") else {}  # Spark 4.2

def run():
    stream = (
        spark.readStream.format("penstock")
        .options(subscribe=source, startingOffsets="earliest", **limits)
        .load()
        .selectExpr("key", "value")
    )
    query = (
        stream.writeStream.format("penstock")
        .option("topic", stream_sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

run()
last = max((Path(checkpoint) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
for path in (last, last.with_name(f".{last.name}.crc")):  # as after a crash before Spark noted its last micro-batch
    path.unlink(missing_ok=True)
run()
assert last.exists(), "the micro-batch ran again"
spark.stop()
"""


def test_topic_is_copied_once_by_a_batch_and_by_a_stream_when_the_last_micro_batch_runs_again(
    stack: Stack, storage: StackStorage, admin: Admin, transport: HttpTransport, tmp_path: Path
) -> None:
    topics = ["spark-source", "spark-batch", "spark-stream"]
    for topic in topics:
        admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(transport=stack.transport()) as producer:
        for number in range(RECORDS):
            producer.send("spark-source", b"value %d" % number, key=b"%d" % (number % 50))
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    key, secret = stack.create_user("spark", everything)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PENSTOCK_"))}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *topics, str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env={
            **environ,
            **storage_variables(storage.outputs),
            "PENSTOCK_URL": stack.url,
            "AWS_ENDPOINT_URL": stack.endpoint_url,
            "AWS_REGION": stack.region,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "PYTHONPATH": os.pathsep.join([*PACKAGES, os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    source, batch, stream = (
        [[value or b"" for _, value in read_all(transport, topic, partition)] for partition in range(PARTITIONS)]
        for topic in topics
    )
    assert sum(map(len, source)) == RECORDS
    assert [sorted(values) for values in batch] == [sorted(values) for values in source]
    assert stream == source, "each record once, and those of a key in their order"
