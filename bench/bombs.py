"""Measures how soon a record comes that lies behind bombs, and the memory that its reader takes meanwhile.

A bomb is a legal record of about 2 KB that decodes to 60 MiB. Each reader runs in a process of its own, with a service
in memory, so the memory is that of the service, the reader and the interpreter together. The functions of a stage have
1,024 MiB each.
"""

import json
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression

VALUE_BYTES = 60 * MIB
SECONDS_MAX = 10.0  # behind one bomb; many take as many times its CPU
MEMORY_MIB_MAX = 1_024
NOW_MS = 1_790_000_000_000
ARN = "arn:aws:lambda:eu-west-1:111122223333:function:pack"
FILTER = {"type": ["yes"]}
GOOD = encode([NewRecord(NOW_MS, b"good", b"good", [("type", b"yes")])])

Step = Callable[[], bool]
"""One call of a reader. True once the record behind the bombs has come."""


def by_subscription(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    handled: list[int] = []
    service.add_function(ARN, lambda event, _: handled.extend(each["offset"] for each in event["records"]["orders-0"]))
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest", **settings})

    def step() -> bool:
        service.deliver_pushes()
        return bool(handled)

    return step


def by_json(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})

    def step() -> bool:
        body = json.dumps({"max_records": 100}).encode()
        answer = service.transport.call("POST", "/v1/share-groups/workers/records", {}, {}, body)
        return any(each["key"] == "good" for each in json.loads(answer.body).get("records", ()))

    return step


def by_share_consumer(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})
    consumer = service.share_consumer(group_id="workers")

    def step() -> bool:
        records = consumer.poll(timeout_ms=1_000)
        for record in records:
            consumer.accept(record)
        return any(record.key == b"good" for record in records)

    return step


def by_fetch(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    consumer = service.consumer("orders", group_id="readers", auto_offset_reset="earliest", **settings)
    return lambda: any(record.key == b"good" for record in consumer.poll(timeout_ms=1_000))


Reader = tuple[Callable[[MemoryPenstock, Mapping[str, Any]], Step], Mapping[str, Any]]
READERS: Mapping[str, Reader] = {
    "ordered subscription": (by_subscription, {"mode": "ordered"}),
    "parallel subscription": (by_subscription, {"mode": "parallel"}),
    "subscription with a filter": (by_subscription, {"filter": FILTER}),
    "share group, JSON": (by_json, {}),
    "share group by key, JSON": (by_json, {"ordering": "key"}),
    "share group with a filter, JSON": (by_json, {"filter": FILTER}),
    "share group, SDK": (by_share_consumer, {}),
    "share group by key, SDK": (by_share_consumer, {"ordering": "key"}),
    "share group with a filter, SDK": (by_share_consumer, {"filter": FILTER}),
    "consumer, SDK": (by_fetch, {}),
    "consumer with a filter, SDK": (by_fetch, {"filter": FILTER}),
}


@click.command(help=__doc__)
@reported("bombs")
@click.option("--bombs", default=50, show_default=True, type=click.IntRange(1), help="In front of the record.")
def main(report: Report, bombs: int) -> None:
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        bomb = processes.submit(make_bomb).result()
        report.conditions.append(f"A bomb has {len(bomb):,} bytes.")
        for count in sorted({1, bombs}):
            rows = [processes.submit(measure, name, bomb, count).result() for name in READERS]
            report.show(f"behind {count}", rows)
            report.judge(holds=all(float(str(row["peak_mib"])) < MEMORY_MIB_MAX for row in rows))
            report.judge(holds=count > 1 or all(float(str(row["seconds"])) <= SECONDS_MAX for row in rows))


def make_bomb() -> bytes:
    """In a process of its own: a child's peak begins with the memory of its parent."""
    return encode([NewRecord(NOW_MS, b"bomb", bytes(VALUE_BYTES))], Compression.ZSTD)


def measure(name: str, bomb: bytes, bombs: int) -> Row:
    """The row of one reader, measured in this process."""
    start, settings = READERS[name]
    with MemoryPenstock() as service:
        service.create_topic("orders")
        for data in (*[bomb] * bombs, GOOD):
            _put(service, data)
        before_mib = _peak_mib()
        step = start(service, settings)
        began_s = time.perf_counter()
        while not step():
            pass
        seconds = time.perf_counter() - began_s
        return {
            "reader": name,
            "seconds": round(seconds, 2),
            "peak_mib": _peak_mib(),
            "before_mib": before_mib,
        }


def _put(service: MemoryPenstock, data: bytes) -> None:
    header = {"acks": "quorum", "batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    body = frame.encode(header, [data])
    answer = service.transport.call("POST", "/v1/produce", {}, {"Content-Type": frame.FRAME_CONTENT_TYPE}, body)
    assert "error" not in json.loads(answer.body)["results"][0], answer.body


def _peak_mib() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024)


if __name__ == "__main__":
    main()
