"""Measure the time from an append to the start of the target, under traffic and from an idle subscription.

The steps of a record that comes to an idle subscription are told by the logs of the functions between. The log lines
have a resolution of a millisecond, and nothing else may use the stack.
"""

import os
import re
import statistics
import tempfile
import time
from pathlib import Path

import click

from bench.push.pushed_topic import DELIVER, PushedTopic, pushed_topic
from bench.report.recording import Report, reported
from bench.report.result import Row
from localstack.clients import client
from penstock import Producer

PARTITIONS = 6
DISPATCH = "penstock-dispatch"
APART_S = 3.0  # so that the subscription is idle before each record
_REPORT = re.compile(r"^REPORT .*\tDuration: ([0-9.]+) ms")
RATES = (5.0, 10.0, 20.0)  # records a second: with a wake-up for each, the last one takes both cores
_P50_MS_MAX = 120  # at the first rate


@click.command(help=__doc__)
@reported("push_latency")
@click.option("--seconds", default=20, show_default=True, help="Of traffic at each rate.")
@click.option("--samples", default=20, show_default=True, help="Records that come to an idle subscription.")
def main(report: Report, seconds: int, samples: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pushed_topic(Path(folder), partitions=PARTITIONS) as topic:
        topic.subscribe(start="earliest")
        _send(topic, 20, 0.1)  # starts the functions
        topic.wait_until_delivered()
        traffic = [_under_traffic(topic, rate, seconds) for rate in RATES]
        time.sleep(APART_S)
        idle = [_one(topic) for _ in range(samples)]
    report.show("under traffic", traffic)
    report.show(
        "from an idle subscription, p50",
        [{name: round(statistics.median(float(each[name] or 0) for each in idle), 1) for name in idle[0]}],
    )
    report.judge(holds=float(traffic[0]["p50_ms"] or 0) <= _P50_MS_MAX)


def _under_traffic(topic: PushedTopic, rate: float, seconds: int) -> Row:
    before = len(topic.invocations())
    _send(topic, round(seconds * rate), 1 / rate)
    topic.wait_until_delivered()
    took_ms = _to_target_ms(topic, before)
    return {
        "records_per_s": rate,
        "records": len(took_ms),
        "invocations": len(topic.invocations()) - before,
        "p50_ms": round(statistics.median(took_ms), 1),
        "p99_ms": round(statistics.quantiles(took_ms, n=100)[98], 1),
    }


def _send(topic: PushedTopic, records: int, apart_s: float) -> None:
    with Producer(linger_ms=0) as producer:
        began_s = time.monotonic()
        for number in range(records):
            time.sleep(max(0.0, began_s + number * apart_s - time.monotonic()))
            producer.send(topic.name, b"%.3f" % (time.time() * 1_000), partition=number % PARTITIONS)


def _to_target_ms(topic: PushedTopic, after: int) -> list[float]:
    """From each record's `send` to its first invocation."""
    first: dict[str, float] = {}
    for each in topic.invocations()[after:]:
        for value in each.values:
            first.setdefault(value, each.began_ms - float(value))
    return [*first.values()]


def _one(topic: PushedTopic) -> Row:
    """Send one record, and tell where its time went."""
    seen = len(topic.invocations())
    began_ms = time.time() * 1_000
    with Producer(linger_ms=0) as producer:
        producer.send(topic.name, b"%.3f" % began_ms, partition=0).result()
    acknowledged_ms = time.time() * 1_000
    topic.wait_for(lambda: len(topic.invocations()) > seen, progress=lambda: len(topic.invocations()))
    started_ms = topic.invocations()[seen].began_ms
    time.sleep(APART_S)
    dispatched_ms, delivering_ms = _began_ms(DISPATCH, began_ms), _began_ms(DELIVER, began_ms)
    return {
        "whole_ms": started_ms - began_ms,
        "acknowledged_ms": acknowledged_ms - began_ms,
        "to_dispatch_ms": dispatched_ms - began_ms,
        "dispatch_to_deliver_ms": delivering_ms - dispatched_ms,
        "deliver_to_target_ms": started_ms - delivering_ms,
    }


def _began_ms(function: str, since_ms: float) -> float:
    """The first begin of the function after that time: the time of its report, less the report's duration."""
    logs = client("logs", int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    events = logs.filter_log_events(logGroupName=f"/aws/lambda/{function}", startTime=int(since_ms))["events"]
    began = [event["timestamp"] - float(found[1]) for event in events if (found := _REPORT.search(event["message"]))]
    return min((each for each in began if each >= since_ms - 1), default=since_ms)
