"""Measure the time from an append to the start of a subscription's target, at some rates.

The target is a Lambda function that notes its invocations. Exit code 0: p50
and p99 are within their bars at each rate.
"""

import io
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from localstack.clients import client
from penstock import Admin, Producer

PARTITIONS = 6
DELIVER = "penstock-deliver"
PATIENCE_S = 240  # longer than a lane's lock
RATES = (5.0, 10.0, 20.0)  # records a second, each of which a delivery of its own may carry
_P50_MS_MAX, _P99_MS_MAX = 120, 1_000
_TARGET = Path(__file__).parent / "loads" / "push_target.py"
_TRUST = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}


@click.command(help=__doc__)
@reported("push_latency")
@click.option("--seconds", default=20, show_default=True, help="Of traffic at each rate.")
def main(report: Report, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder)) as topic:
        _send(topic, 20, 0.1)  # starts the functions
        topic.wait_until_delivered()
        traffic = [_under_traffic(topic, rate, seconds) for rate in RATES]
    report.show("under traffic", traffic)
    slowest = {name: max(float(each[name] or 0) for each in traffic) for name in ("p50_ms", "p99_ms")}
    report.judge(holds=slowest["p50_ms"] <= _P50_MS_MAX and slowest["p99_ms"] <= _P99_MS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedTopic:
    """A topic with a subscription of the same name, whose target writes to `ledger`."""

    admin: Admin
    name: str
    ledger: Path

    def invocations(self) -> list[Mapping[str, Any]]:
        """The time and the values of each invocation so far, by the time."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return sorted(map(json.loads, lines), key=lambda each: each["began_ms"])

    def wait_until_delivered(self) -> None:
        """Wait until all is finished, as long as the target is invoked at least each `PATIENCE_S`."""
        seen, deadline_s = 0, time.monotonic() + PATIENCE_S
        while self.admin.describe_subscription(self.name).lag:
            time.sleep(0.2)
            count = len(self.invocations())
            if count != seen:
                seen, deadline_s = count, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"no invocation for {PATIENCE_S} s after {seen:,}")


@contextmanager
def pushed_topic(folder: Path) -> Iterator[PushedTopic]:
    """A topic, a target and its subscription, which are deleted afterwards."""
    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    lambdas, iam, name = client("lambda", port), client("iam", port), f"push-{secrets.token_hex(4)}"
    trust = json.dumps({"Version": "2012-10-17", "Statement": [_TRUST]})
    ledger = folder / "ledger.jsonl"
    arn = lambdas.create_function(
        FunctionName=name,
        Runtime=f"python3.{sys.version_info.minor}",
        Role=iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"],
        Handler="push_target.handler",
        Code={"ZipFile": _zipped(_TARGET)},
        Timeout=30,
        Environment={"Variables": {"LEDGER": str(ledger)}},
    )["FunctionArn"]
    variables = lambdas.get_function_configuration(FunctionName=DELIVER)["Environment"]["Variables"]
    lambdas.add_permission(
        FunctionName=name,
        StatementId="penstock",
        Action="lambda:InvokeFunction",
        Principal=variables["PENSTOCK_TARGETS"].partition(",")[0],  # the role under which the service calls targets
    )
    with Admin() as admin:
        admin.create_topic(name, partitions=PARTITIONS)
        admin.put_subscription(name, [name], {"lambda": arn}, {"start": "earliest"})
        try:
            yield PushedTopic(admin=admin, name=name, ledger=ledger)
        finally:
            admin.delete_subscription(name)
            admin.delete_topic(name)
            lambdas.delete_function(FunctionName=name)
            iam.delete_role(RoleName=name)


def _zipped(source: Path) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(source, source.name)
        return file.getvalue()


def _under_traffic(topic: PushedTopic, rate: float, seconds: int) -> Row:
    before = len(topic.invocations())
    _send(topic, round(seconds * rate), 1 / rate)
    topic.wait_until_delivered()
    first: dict[str, float] = {}
    for each in topic.invocations()[before:]:
        for value in each["values"]:
            first.setdefault(value, each["began_ms"] - float(value))
    return {
        "records_per_s": rate,
        "records": len(first),
        "invocations": len(topic.invocations()) - before,
        "p50_ms": round(statistics.median(first.values()), 1),
        "p99_ms": round(statistics.quantiles(first.values(), n=100)[98], 1),
    }


def _send(topic: PushedTopic, records: int, apart_s: float) -> None:
    """Send records whose values are the times of their sends."""
    with Producer(linger_ms=0) as producer:
        began_s = time.monotonic()
        for number in range(records):
            time.sleep(max(0.0, began_s + number * apart_s - time.monotonic()))
            producer.send(topic.name, b"%.3f" % (time.time() * 1_000), partition=number % PARTITIONS)


if __name__ == "__main__":
    main()
