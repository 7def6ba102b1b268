"""Measures consumers that wait on the deployed local stack: what an idle one costs, and how soon a record comes.

The function time is that of the functions' REPORT lines, so nothing else may use the stack. It needs the variables of
`.penstock/local.env`.
"""

import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from bench.counting import CountingTransport
from bench.report.recording import Report, reported
from bench.report.result import Row
from localstack.clients import client
from penstock import Admin, Consumer, Producer
from penstock.http.transport import open_transport

PARTITIONS = 6
SETTLE_S = 5  # joining, subscribing and arming come before the measured time
LIVELY_S = 15
APART_S = (0.6, 0.9)  # between two records, so that the consumer sleeps before each
_REPORT = re.compile(r"^REPORT .*\tDuration: ([0-9.]+) ms")
PATHS = ("/v1/fetch", "/v1/wake-ups", "/v1/metadata", "/v1/groups/waiting/heartbeat")


@click.command(help=__doc__)
@reported("waiting")
@click.option("--seconds", default=60, show_default=True, help="How long each idle consumer is watched.")
@click.option("--samples", default=60, show_default=True, help="How many records to time in each mode.")
def main(report: Report, seconds: int, samples: int) -> None:
    transport = CountingTransport(open_transport())
    rows: list[Row] = []
    for name, options in (
        ("wake", {"wait": "wake"}),
        ("wake, in a group", {"wait": "wake", "group_id": "waiting"}),
        ("poll", {"wait": "poll"}),
    ):
        with report.console.status(f"idle consumer: {name}"):
            rows.append({"consumer": name, **_idle(transport, seconds, options)})
    report.show("an idle consumer of 6 partitions", rows)
    rows = []
    for partitions, apart_ms in ((6, 50), (1, 300)):
        for turn in range(2):  # in turns: the machine's pace changes
            for interval_ms in (200, 0):
                name = f"{partitions} partitions, a record each {apart_ms} ms, fetch_interval_ms={interval_ms}"
                with report.console.status(name):
                    rows.append(
                        {"consumer": name, "turn": turn + 1, **_lively(transport, partitions, apart_ms, interval_ms)}
                    )
    report.show("a lively consumer, 15 s", rows)
    rows = []
    for name, wait, apart in (
        ("wake, records apart", "wake", APART_S),
        ("wake, records one after the other", "wake", (0.0, 0.0)),
        ("poll, records apart", "poll", APART_S),
        ("poll, records one after the other", "poll", (0.0, 0.0)),
    ):
        with report.console.status(name):
            rows.append({"consumer": name, **_latency(transport, samples, wait, apart)})
    report.show("from append to poll", rows)


def _idle(transport: CountingTransport, seconds: int, options: dict[str, Any]) -> Row:
    with _topic(transport) as topic, Consumer(topic, transport=transport, **options) as consumer:
        consumer.poll(timeout_ms=SETTLE_S * 1_000)
        transport.reset()
        began = datetime.now(UTC)
        assert not consumer.poll(timeout_ms=seconds * 1_000)
        requests = {path: transport.counts(path) for path in PATHS}
        calls = sum((each.storage_calls for each in requests.values()), Counter[str]())
    return {
        "requests": sum(each.requests for each in requests.values()),
        "storage_calls": sum(calls.values()),
        "function_s": round(_function_s(began), 3),
    }


def _lively(transport: CountingTransport, partitions: int, apart_ms: int, interval_ms: int) -> Row:
    """Records come one by one. The function time is that of `fetch`, from append to poll that of each record."""
    waited: list[float] = []
    sent: dict[bytes, float] = {}
    with (
        _topic(transport, partitions) as topic,
        Producer(transport=transport, linger_ms=0) as producer,
        Consumer(topic, transport=transport, fetch_interval_ms=interval_ms) as consumer,
    ):
        consumer.poll(timeout_ms=SETTLE_S * 1_000)
        transport.reset()
        began, started = datetime.now(UTC), time.perf_counter()
        count = LIVELY_S * 1_000 // apart_ms
        with ThreadPoolExecutor(1) as thread:
            thread.submit(_send_each, producer, topic, sent, (count, apart_ms, partitions))
            while len(waited) < count:
                found = consumer.poll(timeout_ms=10_000)
                assert found, "a record did not come"
                waited += [time.perf_counter() - sent[record.value or b""] for record in found]
        assert time.perf_counter() - started < 3 * LIVELY_S
        fetches = transport.counts("/v1/fetch").requests
    return {
        "fetches": fetches,
        "fetch_function_s": round(_function_s(began, "fetch"), 2),
        "delivered_p50_ms": round(statistics.median(waited) * 1_000),
        "delivered_p99_ms": round(statistics.quantiles(waited, n=100)[98] * 1_000),
    }


def _send_each(producer: Producer, topic: str, sent: dict[bytes, float], rate: tuple[int, int, int]) -> None:
    count, apart_ms, partitions = rate
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number * apart_ms / 1_000 - time.perf_counter()))
        value = b"%d" % number
        sent[value] = time.perf_counter()
        producer.send(topic, value, partition=number % partitions)


def _function_s(since: datetime, function: str = "") -> float:
    """The seconds that all functions ran since then, or those whose name ends so, by the last lines of their logs."""
    logs = client("logs", int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    total_ms = 0.0
    for group in logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/")["logGroups"]:
        if not group["logGroupName"].endswith(function):
            continue
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=group["logGroupName"], startTime=int(since.timestamp() * 1_000)
        )
        lines = [event["message"] for page in pages for event in page["events"]]
        total_ms += sum(float(found[1]) for line in lines if (found := _REPORT.search(line)))
    return total_ms / 1_000


def _latency(transport: CountingTransport, samples: int, wait: Any, apart: tuple[float, float]) -> Row:
    acknowledged: list[float] = []
    delivered: list[float] = []
    with (
        _topic(transport) as topic,
        Producer(transport=transport, linger_ms=0) as producer,
        Consumer(topic, transport=transport, wait=wait) as consumer,
    ):
        consumer.poll(timeout_ms=SETTLE_S * 1_000)
        for number in range(samples):
            pause_ms = int(random.uniform(*apart) * 1_000)
            assert not pause_ms or not consumer.poll(timeout_ms=pause_ms)
            started = time.perf_counter()
            producer.send(topic, b"x" * 100, partition=number % PARTITIONS).result()
            acknowledged.append(time.perf_counter() - started)
            while not consumer.poll(timeout_ms=5_000):
                pass
            delivered.append(time.perf_counter() - started)
    p99 = statistics.quantiles(delivered, n=100)[98]
    return {
        "acknowledged_p50_ms": round(statistics.median(acknowledged) * 1_000, 1),
        "delivered_p50_ms": round(statistics.median(delivered) * 1_000, 1),
        "delivered_p99_ms": round(p99 * 1_000, 1),
    }


@contextmanager
def _topic(transport: CountingTransport, partitions: int = PARTITIONS) -> Iterator[str]:
    name = f"waiting-{time.time_ns()}"
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=partitions)
        yield name
        admin.delete_topic(name)


if __name__ == "__main__":
    main()
