"""The examples that take a deployed stack: as processes of their own, which get real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.ledger import LEDGER, PAYMENTS
from localstack.places import CHECKOUT
from penstock import Admin, Consumer, Producer
from penstock_core.stack_outputs import storage_variables
from tests.end_to_end.local_stack import COMMAND_S_MAX, Stack
from tests.end_to_end.stack_storage import StackStorage
from tests.support.deadlines import PAUSE_S, until

pytestmark = pytest.mark.stack
PACKAGES = os.pathsep.join(str(CHECKOUT / each) for each in ("functions", "sdk", "glue_jobs"))
PARTITIONS = 3
RECORDS = 3_000
PAYMENTS_SENT = 10_000  # seconds of work: the kill comes in the middle
SESSION_MS = 6_000  # the partitions of a killed worker wait so long
HEARTBEAT_MS = 1_000


@pytest.fixture
def environment(stack: Stack) -> Mapping[str, str]:
    """The variables by which a program on this machine reaches the stack."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PENSTOCK_"))}
    return kept | {
        "PENSTOCK_URL": stack.url,
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": stack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
        "PYTHONPATH": PACKAGES,
    }


def test_worker_repeats_and_loses_nothing_when_it_is_stopped(
    stack: Stack, admin: Admin, environment: Mapping[str, str], tmp_path: Path
) -> None:
    topic = "examples-worker"
    admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(transport=stack.transport()) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, key=b"%d" % number)

    outputs = [tmp_path / "first", tmp_path / "second"]
    with _started("worker", topic, environment, outputs[0]) as first:
        _until(lambda: len(_lines(outputs[0])) >= RECORDS // 10, first)
        first.send_signal(signal.SIGTERM)
        assert first.wait(COMMAND_S_MAX) == 0
    stopped_s = time.monotonic()
    with _started("worker", topic, environment, outputs[1]) as second:
        _until(lambda: sum(len(_lines(output)) for output in outputs) >= RECORDS, second)
        waited_s = time.monotonic() - stopped_s
        second.send_signal(signal.SIGTERM)
        assert second.wait(COMMAND_S_MAX) == 0

    handled = [line.split()[2] for output in outputs for line in _lines(output)]
    assert Counter(handled) == Counter(str(number) for number in range(RECORDS))
    assert waited_s < 40, "the first worker has left its group: its session of 45 s is not waited for"


@pytest.mark.minutes
def test_ledger_books_each_payment_once_when_a_worker_is_killed(
    stack: Stack, admin: Admin, environment: Mapping[str, str], tmp_path: Path
) -> None:
    for topic in (PAYMENTS, LEDGER):
        admin.create_topic(topic, partitions=PARTITIONS)
    with Consumer(  # makes the group, with a session that a killed worker loses soon
        PAYMENTS,
        transport=stack.transport(),
        group_id="ledger",
        delivery="exactly_once",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ) as consumer:
        until(lambda: consumer.poll(timeout_ms=100) or consumer.assignment())
    with Producer(transport=stack.transport()) as producer:
        for number in range(PAYMENTS_SENT):
            payment = {"id": number, "from": f"a{number % 7}", "to": f"a{number % 11}", "cents": number}
            producer.send(PAYMENTS, json.dumps(payment), key=str(number))

    def booked() -> int:
        return sum(each.offset for each in admin.group_offsets("ledger", PAYMENTS))

    with _started("ledger", "1", environment, tmp_path / "first") as killed:
        _until(lambda: booked() > 0, killed)
        killed.kill()
        killed.wait(COMMAND_S_MAX)
    assert booked() < PAYMENTS_SENT
    with _started("ledger", "1", environment, tmp_path / "second") as restarted:
        _until(lambda: booked() == PAYMENTS_SENT, restarted)
        restarted.send_signal(signal.SIGTERM)
        assert restarted.wait(COMMAND_S_MAX) == 0

    with Consumer(LEDGER, transport=stack.transport(), consumer_timeout_ms=5_000) as consumer:
        entries = [json.loads(record.value or b"") for record in consumer]
    assert Counter(entry["payment"] for entry in entries) == Counter(dict.fromkeys(range(PAYMENTS_SENT), 2))
    assert sum(entry["cents"] for entry in entries) == 0


@pytest.mark.minutes
@pytest.mark.skipif(not find_spec("pyspark.sql.datasource"), reason="Spark 3.5 has no Python data sources")
def test_notebook_adds_up_the_orders_of_a_topic(
    stack: Stack, storage: StackStorage, admin: Admin, environment: Mapping[str, str], tmp_path: Path
) -> None:
    topic = "examples-orders"
    admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(transport=stack.transport()) as producer:
        for number in range(100):
            customer = f"c{number % 4}"
            producer.send(topic, json.dumps({"customer": customer, "cents": number}), key=customer)
        producer.send(topic, '{"customer": 7}')
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    key, secret = stack.create_user("notebook", everything)
    credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "examples" / "spark_notebook.py"), topic],
        cwd=tmp_path,
        env={**environment, **storage_variables(storage.outputs), **credentials},
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    assert "1 values do not fit" in done.stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    assert rows == [
        ["customer", "orders", "cents"],
        *([f"c{number}", "25", str(sum(range(number, 100, 4)))] for number in (3, 2, 1, 0)),
    ]


@contextmanager
def _started(
    example: str, argument: str, environment: Mapping[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The example as a process, which is killed at the end if it still runs."""
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(CHECKOUT / "examples" / f"{example}.py"), argument],
            cwd=output.parent,
            env=dict(environment),
            stdout=out,
            stderr=errors,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _lines(output: Path) -> list[str]:
    """The whole lines that are there."""
    return [line for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _until(holds: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait, while the process runs."""

    def step() -> None:
        assert process.poll() is None, "the example has ended by itself"
        time.sleep(PAUSE_S)

    until(holds, step=step, deadline_s=COMMAND_S_MAX)
