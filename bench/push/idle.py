"""Watch an idle subscription: it must cost no invocation and no storage call.

The emulator counts the requests that reach it, so nothing else may use the stack.
"""

import os
import tempfile
import time
from pathlib import Path

import click

from bench.push.pushed_topic import DELIVER, pushed_topic
from bench.report.recording import Report, reported
from localstack.clients import client

PARTITIONS = 6
FUNCTIONS = ("penstock-dispatch", DELIVER)


@click.command(help=__doc__)
@reported("push_idle")
@click.option("--seconds", default=60, show_default=True, type=click.IntRange(1))
def main(report: Report, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder), partitions=PARTITIONS) as topic:
        topic.subscribe(start="earliest")
        topic.send([b"%d" % number for number in range(60)])
        topic.wait_until_delivered()
        time.sleep(5)  # the last deliveries arm their partitions
        since_ms = round(time.time() * 1_000)
        time.sleep(seconds)
        lines = {function: _lines(function, since_ms) for function in (*FUNCTIONS, topic.name)}
        calls = sum(len(found) for found in lines.values())
        topic.send([b"again"] * PARTITIONS)
        topic.wait_until_delivered()
        verdict = topic.verdict()
    report.show(
        "an idle subscription of 6 partitions",
        [{"seconds": seconds, "log_lines": calls, "delivered_afterwards": verdict.handled - 60}],
    )
    report.judge(holds=not calls and verdict.is_right)


def _lines(function: str, since_ms: int) -> list[str]:
    """The log lines of the function. An invocation writes three at least."""
    logs = client("logs", int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    events = logs.filter_log_events(logGroupName=f"/aws/lambda/{function}", startTime=since_ms)["events"]
    return [event["message"] for event in events]
