"""Measures what a filter reads and costs: the bytes from S3, the calls of a consumer, and CPU for decoded megabytes.

Each append carries records of one tag, and one append in `--tags` has the tag that is looked for. It needs the local
stack that `make run` or `penstock local up` starts. The bytes are those that the service's own code reads in this
process. The calls and the CPU are those of the deployed functions.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from bench.meters.counting import CountingTransport
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Consumer, Producer
from penstock.http.transport import Transport, open_transport
from penstock.model import TopicPartition
from penstock_core.filters.filtered_batch import FilterBudget, filter_batch
from penstock_core.filters.policy import parse_filter
from penstock_core.limits import FETCH_BYTES_MAX, FILTER_KEYS_MAX
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import walk
from penstock_service.adapters.aws import aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_spark.storage import find_storage

TOPIC = "bench-filtering"
MB = 1_000_000
NOW_MS = 1_790_000_000_000
SHARE_MAX = 0.03
POLICIES: Mapping[str, Mapping[str, Any] | None] = {
    "none": None,
    "tag": {"tag": ["t7"]},
    "another header": {"kind": ["t7"]},
}


@click.command(help=__doc__)
@reported("filtering")
@click.option("--batches", default=400, show_default=True, type=click.IntRange(1))
@click.option("--tags", default=100, show_default=True, type=click.IntRange(8))
@click.option("--records", default=50, show_default=True, type=click.IntRange(1), help="Of each batch.")
@click.option("--record-bytes", default=400, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="How often CPU is measured.")
def main(report: Report, batches: int, tags: int, records: int, record_bytes: int, rounds: int) -> None:
    with_counts = CountingTransport(open_transport(None, None))
    admin = Admin(transport=with_counts)
    admin.create_topic(TOPIC, 1, {"index_tags": True})
    try:
        _fill(with_counts, batches, tags, [os.urandom(record_bytes) for _ in range(records)])
        reads = [{"filter": name, **_read(policy)} for name, policy in POLICIES.items()]
        whole = float(str(reads[0]["mb_read"]))
        for row in reads:
            row["percent"] = round(100 * float(str(row["mb_read"])) / whole, 2)
        report.show("what the service reads", reads)
        report.judge(holds=float(str(reads[1]["mb_read"])) <= SHARE_MAX * whole)
        report.show(
            "what a consumer costs",
            [{"filter": name, **_consume(with_counts, policy, batches * records)} for name, policy in POLICIES.items()],
        )
    finally:
        admin.delete_topic(TOPIC)
    report.show("CPU for a decoded MB", measure_cpu(rounds))


def _fill(transport: Transport, batches: int, tags: int, values: list[bytes]) -> None:
    with Producer(transport=transport, compression_type="none") as producer:
        for number in range(batches):
            tag = b"t%d" % (number % tags)
            for value in values:
                producer.send(TOPIC, value, headers=[("tag", tag), ("kind", tag)])
            producer.flush()


class _BytesRead(StorageCalls):
    """Counts the bytes that S3 answers."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def watch(self, client: Any) -> None:
        super().watch(client)
        if client.meta.service_model.service_name == "s3":
            client.meta.events.register("after-call.s3.GetObject", self._take)

    def _take(self, parsed: Mapping[str, Any], **_: object) -> None:
        self.bytes += int(parsed.get("ContentLength", 0))


def _read(policy: Mapping[str, Any] | None) -> Row:
    """Fetch after fetch from the start to the end, by the service's code in this process."""
    meter = _BytesRead()
    instance = aws_instance(find_storage(), meter)
    counts, before = Counter[str](), meter.snapshot()
    offset = end = 0
    while not counts["fetches"] or offset < end:
        offset, end = _fetch(instance, policy, offset, counts)
    return {
        "fetches": counts["fetches"],
        "get_objects": meter.since(before).get("s3.GetObject", 0),
        "records": counts["records"],
        "mb_read": round(meter.bytes / MB, 3),
    }


def _fetch(instance: Instance, policy: Mapping[str, Any] | None, offset: int, counts: Counter[str]) -> tuple[int, int]:
    wanted = FetchEntry(
        topic=TOPIC,
        partition=0,
        offset=offset,
        max_bytes=FETCH_BYTES_MAX,
        filter=None if policy is None else parse_filter(policy),
    )
    [result] = fetch(instance, [wanted], max_bytes=FETCH_BYTES_MAX, min_bytes=1, wait_ms=0).all_ok()
    counts["fetches"] += 1
    counts["records"] += sum(record.offset >= offset for record in decode(result.data))
    return result.next_offset, result.high_watermark


def _consume(transport: CountingTransport, policy: Mapping[str, Any] | None, end: int) -> Row:
    """A consumer of the SDK reads the topic from the deployed functions."""
    transport.reset()
    records, began_s = 0, time.perf_counter()
    partition = TopicPartition(TOPIC, 0)
    with Consumer(transport=transport, filter=policy, wait="poll", fetch_wait_ms=0, max_in_flight=1) as consumer:
        consumer.assign([partition])
        while consumer.position(partition) < end:
            records += len(consumer.poll(10_000))
        seconds = time.perf_counter() - began_s
        counts = transport.counts("/v1/fetch")
    return {
        "requests": counts.requests,
        "records": records,
        "mb_received": round(counts.bytes_received / MB, 3),
        "cpu_ms": round(counts.cpu_ms),
        "seconds": round(seconds, 2),
    }


def measure_cpu(rounds: int) -> list[Row]:
    """The CPU time to filter a batch of 1 MB, where one record in a hundred matches. The best of the rounds."""
    rows: list[Row] = []
    policies: Mapping[str, Mapping[str, Any]] = {
        "one text": {"tag": ["t7"]},
        "a number": {"amount": [{"numeric": [">", 98]}]},
        f"{FILTER_KEYS_MAX} alternatives": {
            "$or": [{f"h{number}": [{"prefix": "x"}]} for number in range(FILTER_KEYS_MAX - 1)] + [{"tag": ["t7"]}]
        },
    }
    for value_bytes in (100, 1_000):
        values = [
            NewRecord(
                NOW_MS, None, os.urandom(value_bytes), (("tag", b"t%d" % (n % 100)), ("amount", b"%d" % (n % 100)))
            )
            for n in range(MB // (value_bytes + 40))
        ]
        batch = encode(values)
        [(_, header)] = walk(batch)
        for name, policy in policies.items():
            wanted = parse_filter(policy)
            best_s = float("inf")
            for _ in range(rounds):
                began_s = time.process_time()
                filter_batch(batch, header, wanted, 0, FilterBudget())
                best_s = min(best_s, time.process_time() - began_s)
            rows.append(
                {
                    "records of": f"{value_bytes} B",
                    "filter": name,
                    "cpu_ms_per_mb": round(1_000 * best_s / (len(batch) / MB), 1),
                    "records_per_s": round(len(values) / best_s),
                }
            )
    return rows


if __name__ == "__main__":
    main()
